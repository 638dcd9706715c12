# bash completion for mswitch

_mswitch() {
    mapfile -t COMPREPLY < <("$1" complete bash -- "$COMP_WORDBREAKS" "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
    # These candidates are incomplete words: no space follows.
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=:/] ]]; then
        compopt -o nospace
    fi
}

complete -o nosort -F _mswitch mswitch
