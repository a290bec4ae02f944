//! A file of environment variables: the part of a shell's syntax in which nothing can be expanded.
//!
//! `NAME='value'` per line, the value in single quotes and over several lines if it likes; empty lines and those that begin
//! with `#` are passed over.

const LONGEST_LINE: usize = 64 << 10;

/// The value of a key; empty when the file does not have it. What comes after the key is not looked at.
pub fn value(text: &str, key: &str) -> Result<String, String> {
    let wrong = |line: usize, why: &str| Err(format!("invalid environment variable format at line {line}: {why}"));
    let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    while let Some((number, line)) = lines.next() {
        if line.len() >= LONGEST_LINE {
            return wrong(number, "line too long");
        }
        let line = line.trim_start_matches(BLANK);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((name, given)) = line.split_once('=') else { return wrong(number, "missing '='") };
        if name.trim_end_matches(BLANK).is_empty() {
            return wrong(number, "empty variable name");
        }
        if name.ends_with(BLANK) {
            return wrong(number, "whitespace before '=' is not allowed");
        }
        if given.starts_with(BLANK) {
            // To a shell this is an empty value and then a command.
            if name == key {
                return Ok(String::new());
            }
            continue;
        }
        let Some(mut rest) = given.strip_prefix('\'') else {
            return wrong(number, "value must be enclosed in single quotes");
        };
        let (mut value, mut last) = (String::new(), number);
        let after = loop {
            if let Some((end, after)) = rest.split_once('\'') {
                value.push_str(end);
                break after.trim_start_matches(BLANK);
            }
            value.push_str(rest);
            value.push('\n');
            let Some((next, line)) = lines.next().filter(|(_, line)| line.len() < LONGEST_LINE) else {
                return Err(format!(
                    "invalid environment variable format starting at line {number}: unclosed single quote"
                ));
            };
            (last, rest) = (next, line);
        };
        if !after.is_empty() && !after.starts_with('#') {
            return wrong(last, "unexpected content after closing quote");
        }
        if name == key {
            return Ok(value);
        }
    }
    Ok(String::new())
}

const BLANK: [char; 2] = [' ', '\t'];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_and_taken_as_they_are() {
        let check = |text: &str, key: &str, expect: Result<&str, &str>| {
            let expect = expect.map(str::to_owned).map_err(|why| format!("invalid environment variable format {why}"));
            assert_eq!(value(text, key), expect, "{text}");
        };
        check("# c\n\n \tA='1'\r\nB='2' # two\n", "B", Ok("2"));
        check("A='$X ${Y} `z` \\n \"#='\n", "A", Ok("$X ${Y} `z` \\n \"#="));
        check("A='one\n two\n\nthree'\nB='x'", "A", Ok("one\n two\n\nthree"));
        check("A='one\nB='\nB='x'", "B", Ok("x"));
        check("A='1'", "C", Ok(""));
        check("A= '1'\nB='2'", "A", Ok(""));
        check("A= '1'\nB='2'", "B", Ok("2"));
        check("A='1'\nnonsense", "A", Ok("1"));
        check("A='1'\nnonsense\nB='2'", "B", Err("at line 2: missing '='"));
        check("='1'", "A", Err("at line 1: empty variable name"));
        check("A ='1'", "A", Err("at line 1: whitespace before '=' is not allowed"));
        check("A=1", "A", Err("at line 1: value must be enclosed in single quotes"));
        check("A=\"1\"", "A", Err("at line 1: value must be enclosed in single quotes"));
        check("A='1''2'", "A", Err("at line 1: unexpected content after closing quote"));
        check("\nA='1\n2'x", "A", Err("at line 3: unexpected content after closing quote"));
        check("\nA='1\n2", "A", Err("starting at line 2: unclosed single quote"));
    }
}
