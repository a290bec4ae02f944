//! Regular expressions as Go has them: the patterns of expressions and of schemas.
//!
//! The `regex` crate takes some that Go refuses, refuses some that Go takes, and counts letters of all scripts as `\w`. So a pattern is read here,
//! with Go's words for what is wrong with it, and written again as `regex` wants it. Both match in linear time; what a pattern grows to is bounded.

use regex::{Regex, RegexBuilder};

/// The most memory a compiled pattern may take.
const MAX_SIZE: usize = 10 << 20;
/// How often something may be repeated by a count, counts within counts multiplied.
const MAX_REPEAT: u32 = 1000;

/// Compiles a pattern, or says as Go does why it is none.
pub fn compile(pattern: &str) -> Result<Regex, String> {
    let written = translate(pattern).map_err(|(what, part)| format!("error parsing regexp: {what}: `{part}`"))?;
    let built = RegexBuilder::new(&written).size_limit(MAX_SIZE).build();
    built.map_err(|_| format!("error parsing regexp: expression too large: `{pattern}`"))
}

/// What is wrong, and the part of the pattern that it is wrong with.
type Wrong<'p> = (&'static str, &'p str);

/// A pattern in the syntax of `regex`.
fn translate(pattern: &str) -> Result<String, Wrong<'_>> {
    let mut reader = Reader { whole: pattern, rest: pattern, out: String::new(), groups: Vec::new(), last: None };
    let mut repeated: Option<&str> = None;
    while let Some(next) = reader.rest.chars().next() {
        let before = reader.rest;
        let was_repeated = repeated.take();
        match next {
            '(' => reader.open()?,
            ')' => reader.close()?,
            '|' => {
                reader.merge();
                reader.last = None;
                reader.take('|');
            }
            '^' | '$' | '.' => {
                reader.take(next);
                reader.operand(1);
            }
            '[' => reader.class()?,
            '*' | '+' | '?' => {
                reader.repeat(before, &before[1..], None, was_repeated)?;
                repeated = Some(before);
            }
            '{' => match counts(before) {
                Some((min, max, after)) => {
                    let fits = |count: u32| count <= MAX_REPEAT;
                    if !fits(min) || max.is_some_and(|max| !fits(max) || min > max) {
                        return Err(("invalid repeat count", upto(before, after)));
                    }
                    reader.repeat(before, after, Some((min, max)), was_repeated)?;
                    repeated = Some(before);
                }
                None => reader.literal_next(next),
            },
            '\\' => reader.escape()?,
            _ => reader.literal_next(next),
        }
    }
    match reader.groups.is_empty() {
        true => Ok(reader.out),
        false => Err(("missing closing )", pattern)),
    }
}

/// The part of `from` before `rest`, which is its end.
fn upto<'p>(from: &'p str, rest: &str) -> &'p str {
    &from[..from.len() - rest.len()]
}

/// `{2}`, `{2,}` or `{2,5}` and what follows; anything else means itself.
fn counts(text: &str) -> Option<(u32, Option<u32>, &str)> {
    fn number(text: &str) -> Option<(u32, &str)> {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, rest) = text.split_at(end);
        if digits.is_empty() || (digits.len() > 1 && digits.starts_with('0')) {
            return None;
        }
        Some((digits.parse().unwrap_or(u32::MAX), rest))
    }
    let (min, rest) = number(text.strip_prefix('{')?)?;
    let (max, rest) = match rest.strip_prefix(',') {
        None => (Some(min), rest),
        Some(open) if open.starts_with('}') => (None, open),
        Some(bounded) => number(bounded).map(|(max, rest)| (Some(max), rest))?,
    };
    Some((min, max, rest.strip_prefix('}')?))
}

struct Reader<'p> {
    whole: &'p str,
    rest: &'p str,
    out: String,
    /// For every open group the highest count of repetitions in it so far.
    groups: Vec<u32>,
    /// The count of repetitions within what a repetition would be of; nothing if there is nothing to repeat.
    last: Option<u32>,
}

impl<'p> Reader<'p> {
    fn take(&mut self, c: char) {
        self.rest = &self.rest[c.len_utf8()..];
        self.out.push(c);
    }

    fn literal(&mut self, c: char) {
        push_literal(&mut self.out, c);
        self.operand(1);
    }

    fn literal_next(&mut self, c: char) {
        self.rest = &self.rest[c.len_utf8()..];
        self.literal(c);
    }

    fn operand(&mut self, count: u32) {
        self.merge();
        self.last = Some(count);
    }

    /// What is read before counts for the group that it is in.
    fn merge(&mut self) {
        if let (Some(last), Some(group)) = (self.last, self.groups.last_mut()) {
            *group = last.max(*group);
        }
    }

    fn repeat(
        &mut self,
        before: &'p str,
        after: &'p str,
        counts: Option<(u32, Option<u32>)>,
        repeated: Option<&'p str>,
    ) -> Result<(), Wrong<'p>> {
        let after = after.strip_prefix('?').unwrap_or(after);
        if let Some(first) = repeated {
            return Err(("invalid nested repetition operator", upto(first, after)));
        }
        let Some(within) = self.last else {
            return Err(("missing argument to repetition operator", upto(before, after)));
        };
        if let Some((min, max)) = counts {
            let most = max.unwrap_or(min);
            let count = if most == 0 { 1 } else { most.saturating_mul(within) };
            if (min >= 2 || max.is_some_and(|max| max >= 2)) && count > MAX_REPEAT {
                return Err(("invalid repeat count", upto(before, after)));
            }
            self.last = Some(count);
        }
        self.out.push_str(upto(before, after));
        self.rest = after;
        Ok(())
    }

    fn open(&mut self) -> Result<(), Wrong<'p>> {
        let start = self.rest;
        let Some(special) = start.strip_prefix("(?") else {
            self.take('(');
            self.enter();
            return Ok(());
        };
        if let Some(named) =
            special.strip_prefix("P<").or_else(|| special.strip_prefix('<')).filter(|name| !name.is_empty())
        {
            let Some((name, after)) = named.split_once('>') else { return Err(("invalid named capture", start)) };
            let good = !name.is_empty() && name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric());
            if !good {
                return Err(("invalid named capture", upto(start, after)));
            }
            // Nobody asks for groups by name, and Go takes a name twice.
            self.out.push('(');
            self.rest = after;
            self.enter();
            return Ok(());
        }
        let (mut negative, mut seen) = (false, false);
        let mut rest = special;
        while let Some(flag) = rest.chars().next() {
            rest = &rest[flag.len_utf8()..];
            match flag {
                'i' | 'm' | 's' | 'U' => seen = true,
                '-' if !negative => (negative, seen) = (true, false),
                ':' | ')' if !negative || seen => {
                    self.rest = rest;
                    let flags = upto(special, rest);
                    if flags != ")" {
                        self.out.push_str("(?");
                        self.out.push_str(flags);
                    }
                    if flag == ':' {
                        self.enter();
                    }
                    return Ok(());
                }
                _ => break,
            }
        }
        Err(("invalid or unsupported Perl syntax", upto(start, rest)))
    }

    fn enter(&mut self) {
        self.merge();
        self.groups.push(1);
        self.last = None;
    }

    fn close(&mut self) -> Result<(), Wrong<'p>> {
        self.merge();
        let Some(count) = self.groups.pop() else { return Err(("unexpected )", self.whole)) };
        self.take(')');
        self.last = None;
        self.operand(count);
        Ok(())
    }

    fn escape(&mut self) -> Result<(), Wrong<'p>> {
        let start = self.rest;
        let next = start[1..].chars().next();
        match next {
            Some('A' | 'z') => self.out.push_str(&start[..2]),
            // Words are of ASCII letters in Go.
            Some('b' | 'B') => {
                self.out.push_str("(?-u:");
                self.out.push_str(&start[..2]);
                self.out.push(')');
            }
            Some('C') => return Err(("invalid escape sequence", &start[..2])),
            Some('Q') => {
                let quoted = &start[2..];
                let (text, after) = quoted.split_once("\\E").unwrap_or((quoted, ""));
                self.rest = after;
                text.chars().for_each(|c| self.literal(c));
                return Ok(());
            }
            Some('p' | 'P') => {
                self.rest = unicode_class(start, &mut self.out)?;
                self.operand(1);
                return Ok(());
            }
            Some(letter) if perl_class(letter).is_some() => {
                let (negated, of) = perl_class(letter).expect("just asked");
                self.out.push_str(&format!("[{}{of}]", if negated { "^" } else { "" }));
            }
            _ => {
                let (c, after) = escaped(start)?;
                self.rest = after;
                self.literal(c);
                return Ok(());
            }
        }
        self.rest = &start[2..];
        self.operand(1);
        Ok(())
    }

    fn class(&mut self) -> Result<(), Wrong<'p>> {
        let start = self.rest;
        let mut rest = &start[1..];
        self.out.push('[');
        if let Some(negated) = rest.strip_prefix('^') {
            self.out.push('^');
            rest = negated;
        }
        let mut first = true;
        while first || !rest.starts_with(']') {
            first = false;
            if rest.starts_with("[:")
                && let Some(end) = rest[2..].find(":]")
            {
                let (name, after) = rest.split_at(end + 4);
                if !POSIX.contains(&name[2..end + 2].trim_start_matches('^')) || name[2..].starts_with("^^") {
                    return Err(("invalid character class range", name));
                }
                self.out.push_str(name);
                rest = after;
                continue;
            }
            if rest.starts_with("\\p") || rest.starts_with("\\P") {
                rest = unicode_class(rest, &mut self.out)?;
                continue;
            }
            if let Some(letter) = rest.strip_prefix('\\').and_then(|after| after.chars().next())
                && let Some((negated, of)) = perl_class(letter)
            {
                self.out.push_str(&if negated { format!("[^{of}]") } else { of.to_owned() });
                rest = &rest[2..];
                continue;
            }
            let range = rest;
            let low;
            (low, rest) = class_char(rest, start)?;
            push_literal(&mut self.out, low);
            if rest.starts_with('-') && rest.len() >= 2 && !rest.starts_with("-]") {
                let high;
                (high, rest) = class_char(&rest[1..], start)?;
                if high < low {
                    return Err(("invalid character class range", upto(range, rest)));
                }
                self.out.push('-');
                push_literal(&mut self.out, high);
            }
        }
        self.out.push(']');
        self.rest = &rest[1..];
        self.operand(1);
        Ok(())
    }
}

const POSIX: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
];

/// A letter that stands for a class, whether for what is not in it, and what is in it.
fn perl_class(letter: char) -> Option<(bool, &'static str)> {
    let of = match letter.to_ascii_lowercase() {
        'd' => "0-9",
        's' => "\\t\\n\\x0C\\r ",
        'w' => "0-9A-Za-z_",
        _ => return None,
    };
    Some((letter.is_ascii_uppercase(), of))
}

fn push_literal(out: &mut String, c: char) {
    if c.is_ascii_punctuation() && !matches!(c, '<' | '>') {
        out.push('\\');
    }
    out.push(c);
}

/// `\pN` or `\p{Greek}`: writes it, and answers what follows.
fn unicode_class<'p>(start: &'p str, out: &mut String) -> Result<&'p str, Wrong<'p>> {
    let after = &start[2..];
    let rest = match after.chars().next() {
        None => return Err(("invalid character class range", start)),
        Some('{') => match start.find('}') {
            Some(end) => &start[end + 1..],
            None => return Err(("invalid character class range", start)),
        },
        Some(letter) => &after[letter.len_utf8()..],
    };
    let class = upto(start, rest);
    let name = class[2..].trim_start_matches('{').trim_end_matches('}');
    let (negated, name) = name.strip_prefix('^').map_or((false, name), |name| (true, name));
    let written = format!("\\{}{{{name}}}", if negated == class.starts_with("\\P") { 'p' } else { 'P' });
    // Properties with values, such as `Script=Greek`, are the other crate's own.
    if name.contains(['=', ':']) || Regex::new(&written).is_err() {
        return Err(("invalid character class range", class));
    }
    out.push_str(&written);
    Ok(rest)
}

fn class_char<'p>(text: &'p str, class: &'p str) -> Result<(char, &'p str), Wrong<'p>> {
    match text.chars().next() {
        None => Err(("missing closing ]", class)),
        Some('\\') => escaped(text),
        Some(c) => Ok((c, &text[c.len_utf8()..])),
    }
}

/// The character that an escape stands for, and what follows.
fn escaped(start: &str) -> Result<(char, &str), Wrong<'_>> {
    let text = &start[1..];
    let Some(c) = text.chars().next() else { return Err(("trailing backslash at end of expression", "")) };
    let rest = &text[c.len_utf8()..];
    let invalid = |rest: &str| Err(("invalid escape sequence", upto(start, rest)));
    let octal = |text: &str| text.chars().next().is_some_and(|c| ('0'..='7').contains(&c));
    match c {
        '1'..='7' if !octal(rest) => invalid(rest),
        '0'..='7' => {
            let more = rest.chars().take(2).take_while(|c| ('0'..='7').contains(c)).count();
            let value = u32::from_str_radix(&text[..=more], 8).ok().and_then(char::from_u32);
            Ok((value.unwrap_or_default(), &rest[more..]))
        }
        'x' => hexadecimal(start, rest),
        'a' => Ok(('\u{7}', rest)),
        'f' => Ok(('\u{c}', rest)),
        'n' => Ok(('\n', rest)),
        'r' => Ok(('\r', rest)),
        't' => Ok(('\t', rest)),
        'v' => Ok(('\u{b}', rest)),
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => Ok((c, rest)),
        _ => invalid(rest),
    }
}

/// What follows `\x`.
fn hexadecimal<'p>(start: &'p str, text: &'p str) -> Result<(char, &'p str), Wrong<'p>> {
    let mut characters = text.char_indices();
    let mut value = 0;
    let braces = text.starts_with('{');
    if braces {
        characters.next();
    }
    let mut digits = 0;
    loop {
        let Some((at, c)) = characters.next() else { return Err(("invalid escape sequence", start)) };
        let rest = &text[at + c.len_utf8()..];
        match c.to_digit(16) {
            Some(digit) => value = value * 16 + digit,
            None if braces && c == '}' && digits > 0 => return Ok((char::from_u32(value).unwrap_or_default(), rest)),
            None => return Err(("invalid escape sequence", upto(start, rest))),
        }
        digits += 1;
        if value > u32::from(char::MAX) {
            return Err(("invalid escape sequence", upto(start, rest)));
        }
        if !braces && digits == 2 {
            return Ok((char::from_u32(value).unwrap_or_default(), rest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_as_go_says_it() {
        for (pattern, expect) in [
            ("[", "missing closing ]: `[`"),
            ("(a|b", "missing closing ): `(a|b`"),
            ("a)b", "unexpected ): `a)b`"),
            ("(?=x)", "invalid or unsupported Perl syntax: `(?=`"),
            ("(?i-)", "invalid or unsupported Perl syntax: `(?i-)`"),
            ("(?P<n", "invalid named capture: `(?P<n`"),
            ("(?P<a b>c)", "invalid named capture: `(?P<a b>`"),
            (r"\d{2,1}", "invalid repeat count: `{2,1}`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("((a{100}){10}){2}", "invalid repeat count: `{2}`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("x{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
            ("a|*", "missing argument to repetition operator: `*`"),
            ("?", "missing argument to repetition operator: `?`"),
            (r"\Z", r"invalid escape sequence: `\Z`"),
            (r"\C", r"invalid escape sequence: `\C`"),
            (r"\8", r"invalid escape sequence: `\8`"),
            (r"\x{110000}", r"invalid escape sequence: `\x{110000`"),
            (r"a\", "trailing backslash at end of expression: ``"),
            ("[z-a]", "invalid character class range: `z-a`"),
            ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
            (r"\p{Nonsense}", r"invalid character class range: `\p{Nonsense}`"),
        ] {
            let told = compile(pattern).expect_err(pattern);
            assert_eq!(told, format!("error parsing regexp: {expect}"), "{pattern}");
        }
    }

    #[test]
    fn what_go_takes_means_what_it_means_there() {
        for (pattern, text, matches) in [
            (r"^\w+$", "abc_1", true),
            (r"^\w+$", "é", false),
            (r"^\d$", "٣", false),
            (r"^[\W]$", "é", true),
            (r"\bé", "é", false),
            ("a{,2}$", "a{,2}", true),
            ("^{$", "{", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\101$", "A", true),
            ("^[a&&b]+$", "a&b", true),
            ("^[[a]+$", "[a", true),
            ("(?P<n>a)(?P<n>b)", "ab", true),
            ("(?i)ABC", "abc", true),
            (r"^\pL{1,3}$", "éa", true),
            (r"^\P{^L}$", "é", true),
            ("^[^\\d]$", "x", true),
            ("^[]a]$", "]", true),
            (r"^\x{41}\x42$", "AB", true),
        ] {
            let compiled = compile(pattern).unwrap_or_else(|why| panic!("{pattern}: {why}"));
            assert_eq!(compiled.is_match(text), matches, "{pattern} on {text}");
        }
    }

    #[test]
    fn a_pattern_that_grows_without_end_is_refused() {
        let told = compile(r"(\pL{900}|\pN{900}){1}").expect_err("too large");
        assert!(told.starts_with("error parsing regexp: expression too large: "), "{told}");
    }
}
