//! Reads a command line by a table of flags.

use super::{Flag, Given, Kind};

/// Why a command line cannot be read; pflag's words.
#[derive(Debug, PartialEq, Eq)]
pub enum Mistake {
    /// `--help` or `-h` was asked for.
    Help,
    Words(String),
}

/// Parses arguments by the flags of a command and those of all commands.
pub fn parse<'a>(
    groups: impl IntoIterator<Item = &'a &'static [Flag]>,
    arguments: &[String],
) -> Result<Given, Mistake> {
    let mut given = Given::default();
    for flag in groups.into_iter().flat_map(|group| group.iter()) {
        given.known.entry(flag.name).or_insert(flag);
    }
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--" {
            given.dash = Some(given.arguments.len());
            given.arguments.extend(rest.cloned());
            break;
        } else if let Some(long) = argument.strip_prefix("--") {
            parse_long(&mut given, long, &mut rest)?;
        } else if argument.len() > 1 && argument.starts_with('-') {
            parse_short(&mut given, &argument[1..], &mut rest)?;
        } else {
            given.arguments.push(argument.clone());
        }
    }
    Ok(given)
}

/// Names with underscores mean those with dashes.
fn normal(name: &str) -> String {
    name.replace('_', "-")
}

fn parse_long<'a>(given: &mut Given, long: &str, rest: &mut impl Iterator<Item = &'a String>) -> Result<(), Mistake> {
    let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
    if name.is_empty() || name.starts_with('-') {
        return Err(Mistake::Words(format!("bad flag syntax: --{long}")));
    }
    let Some(flag) = given.known.get(&*normal(name)).copied() else {
        return match value {
            _ if name != "help" => Err(Mistake::Words(format!("unknown flag: --{name}"))),
            Some(value) => match boolean(value) {
                Ok(true) => Err(Mistake::Help),
                Ok(false) => Ok(()),
                Err(why) => Err(Mistake::Words(format!("invalid argument {value:?} for \"-h, --help\" flag: {why}"))),
            },
            None => Err(Mistake::Help),
        };
    };
    let value = match (value, flag.bare) {
        (Some(value), _) => value.to_owned(),
        (None, Some(bare)) => bare.to_owned(),
        (None, None) => {
            rest.next().cloned().ok_or_else(|| Mistake::Words(format!("flag needs an argument: --{name}")))?
        }
    };
    put(given, flag, value)
}

fn parse_short<'a>(
    given: &mut Given,
    letters: &str,
    rest: &mut impl Iterator<Item = &'a String>,
) -> Result<(), Mistake> {
    let mut left = letters;
    while let Some(letter) = left.chars().next() {
        let after = &left[letter.len_utf8()..];
        let Some(flag) = given.known.values().find(|flag| flag.short == Some(letter)).copied() else {
            return Err(match letter {
                'h' => Mistake::Help,
                _ => Mistake::Words(format!("unknown shorthand flag: '{letter}' in -{left}")),
            });
        };
        if let Some(value) = after.strip_prefix('=').filter(|value| !value.is_empty()) {
            return put(given, flag, value.to_owned());
        }
        match flag.bare {
            Some(bare) => {
                put(given, flag, bare.to_owned())?;
                left = after;
            }
            None if !after.is_empty() => return put(given, flag, after.to_owned()),
            None => {
                let missing = || Mistake::Words(format!("flag needs an argument: '{letter}' in -{left}"));
                let value = rest.next().cloned().ok_or_else(missing)?;
                return put(given, flag, value);
            }
        }
    }
    Ok(())
}

/// Sets a flag, and says why it cannot be that.
pub(super) fn put_value(given: &mut Given, flag: &'static Flag, value: &str) -> Result<(), String> {
    put(given, flag, value.to_owned()).map_err(|mistake| match mistake {
        Mistake::Words(words) => words,
        Mistake::Help => String::new(),
    })
}

fn put(given: &mut Given, flag: &'static Flag, value: String) -> Result<(), Mistake> {
    let why = match flag.kind {
        Kind::Bool => boolean(&value).err(),
        Kind::Int => integer(&value).err(),
        Kind::Int32 => integer(&value).and_then(|number| small(number, &value)).err(),
        Kind::Duration => machinery::duration::parse_nanos(&value).err(),
        Kind::PlainDuration => machinery::duration::parse_nanos(&value).err().map(|_| "parse error".to_owned()),
        Kind::Levels => levels(&value).err(),
        Kind::String | Kind::Slice | Kind::Array => None,
    };
    if let Some(why) = why {
        let name = match flag.short {
            Some(short) => format!("-{short}, --{}", flag.name),
            None => format!("--{}", flag.name),
        };
        return Err(Mistake::Words(format!("invalid argument {value:?} for \"{name}\" flag: {why}")));
    }
    given.in_order.push((flag.name, value.clone()));
    given.values.entry(flag.name).or_default().push(value);
    Ok(())
}

/// As `strconv.ParseBool`.
pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(format!("strconv.ParseBool: parsing {text:?}: invalid syntax")),
    }
}

/// As `strconv.ParseInt` with base 0, for what people write.
pub(super) fn integer(text: &str) -> Result<i64, String> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (radix, body) = match digits.get(..2) {
        Some("0x" | "0X") => (16, &digits[2..]),
        Some("0b" | "0B") => (2, &digits[2..]),
        Some("0o" | "0O") => (8, &digits[2..]),
        _ if digits.len() > 1 && digits.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };
    if body.is_empty() || !body.chars().all(|letter| letter.is_digit(radix)) {
        return Err(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"));
    }
    let sign = if text.starts_with('-') { "-" } else { "" };
    i64::from_str_radix(&format!("{sign}{body}"), radix)
        .map_err(|_| format!("strconv.ParseInt: parsing {text:?}: value out of range"))
}

/// Levels of log per file; nothing is logged by file here.
fn levels(text: &str) -> Result<(), String> {
    for pair in text.split(',').filter(|pair| !pair.is_empty()) {
        let parts: Vec<&str> = pair.split('=').collect();
        let [file, level] = parts[..] else { return Err(LEVELS.to_owned()) };
        let level: i32 = level.parse().map_err(|_| LEVELS)?;
        if file.is_empty() {
            return Err(LEVELS.to_owned());
        }
        if level < 0 {
            return Err("negative value for vmodule level".to_owned());
        }
    }
    Ok(())
}

const LEVELS: &str = "syntax error: expect comma-separated list of filename=N";

fn small(number: i64, text: &str) -> Result<i32, String> {
    i32::try_from(number).map_err(|_| format!("strconv.ParseInt: parsing {text:?}: value out of range"))
}

/// The fields of one line of CSV, as pflag reads slices: a field may be quoted.
pub(super) fn comma_separated(text: &str) -> Vec<String> {
    if text.is_empty() {
        return Vec::new();
    }
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let last = fields.last_mut().expect("there is always a field");
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => {
                letters.next();
                last.push('"');
            }
            '"' if quoted || last.is_empty() => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            other => last.push(other),
        }
    }
    fields
}

/// Where the next word of the command's name may be: the first argument that is neither a flag nor a flag's value.
pub fn find_command<'a>(groups: impl IntoIterator<Item = &'a &'static [Flag]>, arguments: &[String]) -> Option<usize> {
    let flags: Vec<&Flag> = groups.into_iter().flat_map(|group| group.iter()).collect();
    let mut at = 0;
    while let Some(argument) = arguments.get(at) {
        if argument == "--" {
            return None;
        } else if let Some(long) = argument.strip_prefix("--") {
            // What nobody knows is taken for a flag with a value.
            let takes =
                !long.contains('=') && !flags.iter().any(|flag| flag.name == normal(long) && flag.bare.is_some());
            at += usize::from(takes && long != "help");
        } else if argument.len() > 1 && argument.starts_with('-') {
            let letter = argument[1..].chars().next();
            let takes =
                argument.chars().count() == 2 && !flags.iter().any(|flag| flag.short == letter && flag.bare.is_some());
            at += usize::from(takes && letter != Some('h'));
        } else if !argument.is_empty() {
            return Some(at);
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    static FLAGS: &[Flag] = &[
        Flag::bool("all-namespaces", "").short('A'),
        Flag::string("output", "", "").short('o'),
        Flag::string("dry-run", "none", "").or_bare("unchanged"),
        Flag::int("chunk-size", "500", ""),
        Flag::int32("port", "-1", ""),
        Flag::slice("label-columns", "").short('L'),
        Flag::array("filename", "").short('f'),
        Flag::plain_duration("flush", "5s", ""),
        Flag::levels("vmodule", ""),
    ];

    fn check(line: &str) -> Result<Given, Mistake> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse([&FLAGS], &words)
    }

    #[test]
    fn flags_are_read_in_every_form() {
        for line in ["-Ao yaml a", "-A -oyaml a", "a --all_namespaces -o=yaml", "--all-namespaces=true a --output yaml"]
        {
            let given = check(line).expect(line);
            assert!(given.is("all-namespaces"), "{line}");
            assert_eq!((given.text("output"), given.arguments.len()), ("yaml", 1), "{line}");
        }
        let given = check("--dry-run client -L a,b -L c -f x -f y,z -- -o").expect("flags");
        assert_eq!(given.text("dry-run"), "unchanged");
        assert_eq!(given.list("label-columns"), ["a", "b", "c"]);
        assert_eq!(given.list("filename"), ["x", "y,z"]);
        assert_eq!((given.arguments, given.dash), (vec!["client".to_owned(), "-o".to_owned()], Some(1)));
        assert!(check("--vmodule=a=1,b*=2, --flush 1s").is_ok());
        assert_eq!(check("").expect("nothing").int("chunk-size"), 500);
    }

    #[test]
    fn mistakes_are_named_as_pflag_names_them() {
        for (line, expected) in [
            ("--foo", "unknown flag: --foo"),
            ("-x", "unknown shorthand flag: 'x' in -x"),
            ("-Ax", "unknown shorthand flag: 'x' in -x"),
            ("-o", "flag needs an argument: 'o' in -o"),
            ("--output", "flag needs an argument: --output"),
            (
                "--chunk-size=a",
                "invalid argument \"a\" for \"--chunk-size\" flag: strconv.ParseInt: parsing \"a\": invalid syntax",
            ),
            (
                "--port=3000000000",
                "invalid argument \"3000000000\" for \"--port\" flag: strconv.ParseInt: parsing \"3000000000\": value out of range",
            ),
            ("--flush=x", "invalid argument \"x\" for \"--flush\" flag: parse error"),
            (
                "--vmodule=a=1,b",
                "invalid argument \"a=1,b\" for \"--vmodule\" flag: syntax error: expect comma-separated list of filename=N",
            ),
            ("--vmodule=a=-1", "invalid argument \"a=-1\" for \"--vmodule\" flag: negative value for vmodule level"),
            (
                "--all-namespaces=x",
                "invalid argument \"x\" for \"-A, --all-namespaces\" flag: strconv.ParseBool: parsing \"x\": invalid syntax",
            ),
        ] {
            assert_eq!(check(line).err(), Some(Mistake::Words(expected.to_owned())), "{line}");
        }
        assert_eq!(check("a --help").err(), Some(Mistake::Help));
        assert_eq!(check("-h").err(), Some(Mistake::Help));
    }

    #[test]
    fn a_command_is_found_behind_flags_and_their_values() {
        let find = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            find_command([&FLAGS], &words).map(|at| words[at].clone())
        };
        assert_eq!(find("-o yaml get pods").as_deref(), Some("get"));
        assert_eq!(find("-oyaml --dry-run get").as_deref(), Some("get"));
        assert_eq!(find("-A --output yaml"), None);
        assert_eq!(find("-x yaml --other value get").as_deref(), Some("get"), "unknown ones take a value");
        assert_eq!(find("-h get").as_deref(), Some("get"));
    }

    #[test]
    fn slices_are_lines_of_csv() {
        assert_eq!(comma_separated("a,\"b,c\",d"), ["a", "b,c", "d"]);
        assert!(comma_separated("").is_empty());
    }
}
