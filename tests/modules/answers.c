/* Commands whose answers are unusual, and a table whose name and layout depend on how this is compiled. */
#include "mswitch_address.h"
#include "mswitch_table.h"

#if defined(WIDE)
#define VALUE "[[\"packets\", \"u64\"], [\"bytes\", \"u64\"]]"
#else
#define VALUE "[[\"packets\", \"u64\"]]"
#endif

#if !defined(TABLE)
#define TABLE connections
#endif
#if defined(APART)
#define HAND_OVER "false"
#else
#define HAND_OVER "true"
#endif
#define TEXT(name) #name
#define NAME(name) TEXT(name)

const char *msw_describe(void) {
    return "{\"name\": \"answers\", \"summary\": \"for tests\","
           " \"params\": [{\"name\": \"port\", \"type\": \"port\", \"help\": \"where packets go\"}],"
           " \"tables\": [{\"name\": \"" NAME(TABLE) "\", \"hand_over\": " HAND_OVER ", \"capacity\": 8,"
           "              \"key\": [[\"number\", \"u64\"]], \"value\": " VALUE "}],"
           " \"commands\": [{\"name\": \"silent\", \"help\": \"fails without a reason\"},"
           "                {\"name\": \"echo\", \"usage\": \"WORD\", \"help\": \"refuses the word\"},"
           "                {\"name\": \"long\", \"help\": \"has too long an answer\"},"
           "                {\"name\": \"fill\", \"help\": \"adds entries until one finds no room\"},"
           "                {\"name\": \"old\", \"help\": \"answers over the arguments\"},"
           "                {\"name\": \"trap\", \"help\": \"breaks\"}]}";
}

#if defined(UNDEFINED)
uint32_t no_such_function(void);
#endif

uint32_t msw_forward(struct msw_batch *batch) {
#if defined(UNDEFINED)
    return no_such_function();
#endif
    return batch->packets - batch->packets;
}

int32_t msw_command(struct msw_batch *batch, uint32_t number) {
    struct msw_printer answer = msw_answer(batch);
    switch (number) {
    case 0: return msw_failed(&answer);
    case 1:
        msw_print(&answer, "not a port: ");
        msw_print_text(&answer, msw_arguments(batch));
        return msw_failed(&answer);
    case 2:
        for (uint32_t i = 0; i < 100000; i++) msw_print_char(&answer, 'x');
        return msw_done(&answer);
    case 3: {
        uint64_t key = 0;
        while (msw_table_insert(msw_table(batch, 0), &key, 0)) key++;
        msw_print_number(&answer, key);
        return msw_done(&answer);
    }
    case 4:
        batch->answer_at = batch->text_at;
        msw_text(batch, batch->text_at)[0] = '!';
        return (int32_t)batch->text_len;
    default:
#if defined(__wasm__)
        msw_log(0, "a line without a batch", 22);
#endif
        __builtin_trap();
    }
}
