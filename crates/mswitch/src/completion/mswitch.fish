# fish completion for mswitch

function __mswitch_complete
    set -l words (commandline --current-process --tokenize --cut-at-cursor)
    $words[1] complete fish -- $words (commandline --current-token --cut-at-cursor) 2>/dev/null
end

complete --command mswitch --no-files --keep-order --arguments '(__mswitch_complete)'
