//! From text to words.

use std::sync::Arc;

use crate::Problem;
use crate::ast::Literal;

#[derive(Debug, Clone, PartialEq)]
pub enum Token {
    Ident(Arc<str>),
    Literal(Literal),
    /// An operator or a bracket.
    Sign(&'static str),
    End,
}

const SIGNS: [&str; 29] = [
    "==", "!=", "<=", ">=", "&&", "||", "[?", ".?", "{?", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",",
    "(", ")", "[", "]", "{", "}", "=", "`",
];

/// All words, each with its place.
pub fn lex(source: &str) -> Result<Vec<(usize, Token)>, Problem> {
    let mut tokens = Vec::new();
    let mut at = 0;
    let bytes = source.as_bytes();
    while let Some(&byte) = bytes.get(at) {
        let rest = &source[at..];
        if byte.is_ascii_whitespace() {
            at += 1;
        } else if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if let Some(prefix) = text_prefix(rest) {
            let (literal, length) = text(source, at, prefix)?;
            tokens.push((at, Token::Literal(literal)));
            at += length;
        } else if byte.is_ascii_digit() || (byte == b'.' && bytes.get(at + 1).is_some_and(u8::is_ascii_digit)) {
            let (literal, length) = number(rest, at)?;
            tokens.push((at, Token::Literal(literal)));
            at += length;
        } else if byte.is_ascii_alphabetic() || byte == b'_' {
            let length = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
            let token = match &rest[..length] {
                "true" => Token::Literal(Literal::Bool(true)),
                "false" => Token::Literal(Literal::Bool(false)),
                "null" => Token::Literal(Literal::Null),
                word => Token::Ident(word.into()),
            };
            tokens.push((at, token));
            at += length;
        } else if byte == b'`' {
            let length =
                rest[1..].find('`').ok_or_else(|| Problem::new(at, "Syntax error: token recognition error at: '`'"))?;
            tokens.push((at, Token::Ident(rest[1..=length].into())));
            at += length + 2;
        } else if let Some(sign) = sign(rest) {
            tokens.push((at, Token::Sign(sign)));
            at += sign.len();
        } else {
            let character = rest.chars().next().unwrap_or_default();
            return Err(Problem::new(at, format!("Syntax error: token recognition error at: '{character}'")));
        }
    }
    tokens.push((source.len(), Token::End));
    Ok(tokens)
}

fn sign(rest: &str) -> Option<&'static str> {
    // `[?a]` and `a.?b` are of optional values; `[? ` in `x[y ? ...` cannot occur, nor `{?` or `.?` elsewhere.
    SIGNS.into_iter().find(|sign| rest.starts_with(sign))
}

/// How many letters stand before the quotes of a text that begins here: `r` for raw, `b` for bytes.
fn text_prefix(rest: &str) -> Option<usize> {
    let prefix = rest.find(|c: char| !matches!(c, 'r' | 'R' | 'b' | 'B')).unwrap_or(rest.len());
    (prefix <= 2 && rest[prefix..].starts_with(['"', '\''])).then_some(prefix)
}

fn text(source: &str, at: usize, prefix: usize) -> Result<(Literal, usize), Problem> {
    let rest = &source[at..];
    let flags = rest[..prefix].to_ascii_lowercase();
    let (raw, binary) = (flags.contains('r'), flags.contains('b'));
    let body = &rest[prefix..];
    let one = &body[..1];
    let triple = one.repeat(3);
    let quote = if body.starts_with(&triple) { triple.as_str() } else { one };
    let unclosed = || Problem::new(at, format!("Syntax error: token recognition error at: '{rest}'"));
    let (mut out, mut position) = (Vec::new(), quote.len());
    loop {
        let left = &body[position..];
        if left.starts_with(quote) {
            position += quote.len();
            break;
        }
        let character = left.chars().next().ok_or_else(unclosed)?;
        if quote.len() == 1 && matches!(character, '\n' | '\r') {
            return Err(unclosed());
        }
        if character == '\\' && raw {
            // A raw text keeps the backslash and what it protects.
            let next = left[1..].chars().next().ok_or_else(unclosed)?;
            out.extend_from_slice(&left.as_bytes()[..1 + next.len_utf8()]);
            position += 1 + next.len_utf8();
        } else if character == '\\' {
            position += escape(&left[1..], binary, &mut out).ok_or_else(unclosed)? + 1;
        } else {
            out.extend_from_slice(&left.as_bytes()[..character.len_utf8()]);
            position += character.len_utf8();
        }
    }
    let literal = if binary {
        Literal::Bytes(out.into())
    } else {
        Literal::String(String::from_utf8(out).map_err(|_| Problem::new(at, "invalid UTF-8 in a text"))?.into())
    };
    Ok((literal, prefix + position))
}

/// What a backslash stands for; returns how much it took.
fn escape(rest: &str, binary: bool, out: &mut Vec<u8>) -> Option<usize> {
    let first = rest.chars().next()?;
    let plain = match first {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 11,
        '\\' | '\'' | '"' | '`' | '?' => first as u8,
        _ => 0,
    };
    if plain != 0 {
        out.push(plain);
        return Some(1);
    }
    let (digits, radix, skip) = match first {
        'x' | 'X' => (2, 16, 1),
        'u' => (4, 16, 1),
        'U' => (8, 16, 1),
        '0'..='3' => (3, 8, 0),
        _ => return None,
    };
    let code = u32::from_str_radix(rest.get(skip..skip + digits)?, radix).ok()?;
    if binary && !matches!(first, 'u' | 'U') {
        out.push(u8::try_from(code).ok()?);
    } else {
        out.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut [0; 4]).as_bytes());
    }
    Some(skip + digits)
}

fn number(rest: &str, at: usize) -> Result<(Literal, usize), Problem> {
    let wrong = |what: &str| Problem::new(at, format!("invalid {what} literal"));
    if let Some(hex) = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X")) {
        let length = hex.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(hex.len());
        let value = u64::from_str_radix(&hex[..length], 16).map_err(|_| wrong("int"))?;
        return if hex[length..].starts_with(['u', 'U']) {
            Ok((Literal::Uint(value), length + 3))
        } else {
            Ok((Literal::Int(i64::try_from(value).map_err(|_| wrong("int"))?), length + 2))
        };
    }
    let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let mut length = digits(rest);
    let mut whole = true;
    if rest[length..].starts_with('.') && rest[length + 1..].starts_with(|c: char| c.is_ascii_digit()) {
        whole = false;
        length += 1 + digits(&rest[length + 1..]);
    }
    if rest[length..].starts_with(['e', 'E']) {
        let signed = usize::from(rest[length + 1..].starts_with(['+', '-']));
        let exponent = digits(&rest[length + 1 + signed..]);
        if exponent > 0 {
            whole = false;
            length += 1 + signed + exponent;
        }
    }
    let word = &rest[..length];
    if !whole {
        // A number that is too large for one is none.
        let number = word.parse().ok().filter(|number: &f64| number.is_finite()).ok_or_else(|| wrong("double"))?;
        return Ok((Literal::Double(number), length));
    }
    if rest[length..].starts_with(['u', 'U']) {
        return Ok((Literal::Uint(word.parse().map_err(|_| wrong("uint"))?), length + 1));
    }
    // The least integer has no positive counterpart: the parser puts the sign back.
    match word.parse::<u64>() {
        Ok(value) if value <= 1 << 63 => Ok((Literal::Int(value.cast_signed()), length)),
        _ => Err(wrong("int")),
    }
}
