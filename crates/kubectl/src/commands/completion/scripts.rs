//! What shells load. Each script sends the words of the line to `kubectl __complete`, offers the words of the answer, and does what
//! its last line says: 2 puts no space after a word, 4 offers no files.

pub fn of(shell: &str) -> Option<&'static str> {
    Some(match shell {
        "bash" => BASH,
        "zsh" => ZSH,
        "fish" => FISH,
        "powershell" => POWERSHELL,
        _ => return None,
    })
}

const BASH: &str = r#"# bash completion for kubectl
# The name that aliases are completed by: complete -o default -F __start_kubectl k
__start_kubectl() {
    # Bash takes words apart at "=" and ":": they are put together again.
    local words=() word at glue="" answer directive line
    for ((at = 1; at <= COMP_CWORD; at++)); do
        word="${COMP_WORDS[at]}"
        if [[ ($word == "=" || $word == ":") && ${#words[@]} -gt 0 ]]; then
            words[-1]+="$word"
            glue=1
        elif [[ -n $glue ]]; then
            words[-1]+="$word"
            glue=""
        else
            words+=("$word")
        fi
    done
    # What was typed may be an alias.
    answer=$(eval "${COMP_WORDS[0]} __complete \"\${words[@]}\"" 2>/dev/null) || return
    directive=${answer##*:}
    answer=${answer%:*}
    local current="${COMP_WORDS[COMP_CWORD]}" whole="${words[-1]}"
    [[ $current == "=" || $current == ":" ]] && current=""
    local cut="${whole%"$current"}"
    COMPREPLY=()
    while IFS= read -r line; do
        line=${line%%$'\t'*}
        [[ -n $line && $line == "$whole"* ]] && COMPREPLY+=("${line#"$cut"}")
        # The value of a flag stands without the flag.
        [[ -n $line && $whole == --*=* && $line == "${whole#*=}"* ]] && COMPREPLY+=("$line")
    done <<< "$answer"
    ((directive & 2)) && compopt -o nospace 2>/dev/null
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
    if ((!(directive & 4))) && [[ ${#COMPREPLY[@]} -eq 0 ]]; then
        compopt -o default 2>/dev/null
    fi
}
complete -F __start_kubectl kubectl
"#;

const ZSH: &str = r#"#compdef kubectl
compdef _kubectl kubectl
_kubectl() {
    local -a offers
    local answer directive line name
    answer=("${(@f)$(eval "${words[1]} __complete \"\${(@)words[2,CURRENT]}\"" 2>/dev/null)}")
    directive=${answer[-1]#:}
    for line in "${(@)answer[1,-2]}"; do
        [[ -z $line ]] && continue
        name=${line%%$'\t'*}
        name=${name//:/\\:}
        if [[ $line == *$'\t'* ]]; then
            offers+=("$name:${line#*$'\t'}")
        else
            offers+=("$name")
        fi
    done
    local -a options
    ((directive & 2)) && options=(-S '')
    if ((${#offers})); then
        # The value of a flag follows the flag in the same word.
        [[ ${words[CURRENT]} == --*=* ]] && compset -P '*='
        _describe -V kubectl offers "${options[@]}"
    elif ((!(directive & 4))); then
        _files
    fi
}
# Loaded by compinit it is a function, by source it only defines one.
[[ ${funcstack[1]} == _kubectl ]] && _kubectl
"#;

const FISH: &str = r#"# fish completion for kubectl
function __kubectl_complete
    set -l words (commandline -opc)
    set -l typed (commandline -ct)
    set -l answer ($words[1] __complete $words[2..-1] "$typed" 2>/dev/null)
    set -l directive (string replace -r '^:' '' -- $answer[-1])
    set -e answer[-1]
    set -l before ''
    if string match -q -- '--*=*' "$typed"
        set before (string replace -r '=.*' '=' -- "$typed")
    end
    for line in $answer
        printf '%s%s\n' $before $line
    end
    if test (math "bitand($directive, 4)") -eq 0 -a (count $answer) -eq 0
        __fish_complete_path "$typed"
    end
end
complete -c kubectl -e
complete -c kubectl -f -a '(__kubectl_complete)'
"#;

const POWERSHELL: &str = r#"# powershell completion for kubectl
Register-ArgumentCompleter -CommandName 'kubectl' -Native -ScriptBlock {
    param($typed, $ast, $position)
    $words = @($ast.CommandElements | Where-Object { $_.Extent.StartOffset -lt $position } | ForEach-Object { "$_" })
    $rest = @($words | Select-Object -Skip 1)
    if ($typed -eq '') { $rest += '""' }
    $answer = @(& $words[0] __complete @rest 2>$null)
    if ($answer.Count -eq 0) { return }
    $directive = [int]($answer[-1].TrimStart(':'))
    $space = if ($directive -band 2) { '' } else { ' ' }
    $before = if ($typed -like '--*=*') { $typed -replace '=.*', '=' } else { '' }
    $answer | Select-Object -SkipLast 1 | ForEach-Object {
        $parts = $_ -split "`t", 2
        $text = "$before$($parts[0])"
        $about = if ($parts.Count -gt 1) { $parts[1] } else { $parts[0] }
        [System.Management.Automation.CompletionResult]::new("$text$space", $text, 'ParameterValue', $about)
    }
}
"#;
