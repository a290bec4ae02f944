//! Reads a template.

use super::{Node, Operator, Slice};

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

/// What an action says, where it is not a path.
enum Action {
    Path(Vec<Node>),
    Range(Vec<Node>),
    End,
}

pub(super) fn parse(text: &str) -> Result<Vec<Node>, String> {
    let mut parser = Parser { text, at: 0 };
    let (nodes, ended) = parser.block(0)?;
    if ended { Err("not in range, nothing to end".to_owned()) } else { Ok(nodes) }
}

/// A template may be as deep as anybody needs, and no deeper than the stack.
const MOST_RANGES: usize = 64;

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.peek()?;
        self.at += letter.len_utf8();
        Some(letter)
    }

    fn eat(&mut self, word: &str) -> bool {
        let found = self.rest().starts_with(word);
        self.at += if found { word.len() } else { 0 };
        found
    }

    /// Text and actions up to the end of the template or of a range; whether it was the latter.
    fn block(&mut self, depth: usize) -> Result<(Vec<Node>, bool), String> {
        if depth > MOST_RANGES {
            return Err("too many nested ranges".to_owned());
        }
        let mut nodes = Vec::new();
        while !self.rest().is_empty() {
            let text = self.rest().find('{').map_or(self.rest(), |end| &self.rest()[..end]).to_owned();
            if !text.is_empty() {
                self.at += text.len();
                nodes.push(Node::Text(text));
                continue;
            }
            self.at += 1;
            match self.action()? {
                Action::Path(path) => nodes.push(Node::List(path)),
                Action::Range(over) => {
                    let (body, _) = self.block(depth + 1)?;
                    nodes.push(Node::Range(over, body));
                }
                Action::End => return Ok((nodes, true)),
            }
        }
        Ok((nodes, false))
    }

    fn action(&mut self) -> Result<Action, String> {
        let mut nodes = Vec::new();
        let (mut range, mut end) = (false, false);
        loop {
            if self.eat("}") {
                return Ok(match (end, range) {
                    (true, _) => Action::End,
                    (false, true) => Action::Range(nodes),
                    (false, false) => Action::Path(nodes),
                });
            } else if self.eat("[?(") {
                nodes.push(self.filter()?);
            } else if self.eat("..") {
                nodes.push(Node::Recursive);
                // What follows is a field, with or without brackets.
                if self.peek().is_some_and(|letter| letter.is_alphanumeric() || letter == '_') {
                    nodes.push(self.field());
                }
            } else {
                match self.next() {
                    None | Some('\n' | '\r') => return Err("unclosed action".to_owned()),
                    Some(' ' | '@' | '$') => {}
                    Some('[') => nodes.push(self.array()?),
                    Some(quote @ ('"' | '\'')) => nodes.push(Node::Text(self.quoted(quote)?)),
                    Some('.') if self.peek().is_none_or(|letter| terminates(letter) && letter != '\\') => {}
                    Some('.') => nodes.push(self.field()),
                    Some(letter) if letter == '+' || letter == '-' || letter.is_ascii_digit() => {
                        self.at -= 1;
                        nodes.push(self.number()?);
                    }
                    Some('*') => nodes.push(Node::Wildcard),
                    Some(letter) if letter.is_alphanumeric() || letter == '_' => {
                        self.at -= letter.len_utf8();
                        match self.word().as_str() {
                            "range" => range = true,
                            "end" => end = true,
                            "true" => nodes.push(Node::Bool(true)),
                            "false" => nodes.push(Node::Bool(false)),
                            other => return Err(format!("unrecognized identifier {other}")),
                        }
                    }
                    Some(letter) => {
                        return Err(format!(
                            "unrecognized character in action: U+{:04X} '{letter}'",
                            u32::from(letter)
                        ));
                    }
                }
            }
        }
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(letter) = self.peek().filter(|letter| !terminates(*letter)) {
            self.at += letter.len_utf8();
            word.push(letter);
        }
        word
    }

    /// A field's name; a backslash takes the next letter as it is.
    fn field(&mut self) -> Node {
        let mut name = String::new();
        while let Some(letter) = self.peek() {
            if letter == '\\' {
                self.at += 1;
                name.extend(self.next());
            } else if terminates(letter) {
                break;
            } else {
                self.at += letter.len_utf8();
                name.push(letter);
            }
        }
        if name == "*" { Node::Wildcard } else { Node::Field(name) }
    }

    fn number(&mut self) -> Result<Node, String> {
        let mut text = String::new();
        while let Some(letter) = self.peek().filter(|letter| letter.is_ascii_digit() || "+-.eE".contains(*letter)) {
            self.at += 1;
            text.push(letter);
        }
        let whole = text.parse::<i64>().map(Node::Int);
        whole.or_else(|_| text.parse::<f64>().map(Node::Float)).map_err(|_| format!("cannot parse number {text}"))
    }

    fn quoted(&mut self, quote: char) -> Result<String, String> {
        let mut text = String::new();
        loop {
            match self.next() {
                None | Some('\n') => return Err("unterminated quoted string".to_owned()),
                Some(letter) if letter == quote => return Ok(text),
                Some('\\') => match self.next() {
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some('r') => text.push('\r'),
                    Some('u') => {
                        let code = self.rest().get(..4).and_then(|hex| u32::from_str_radix(hex, 16).ok());
                        let letter = code.and_then(char::from_u32).ok_or("invalid syntax")?;
                        self.at += 4;
                        text.push(letter);
                    }
                    Some(other) => text.push(other),
                    None => return Err("unterminated quoted string".to_owned()),
                },
                Some(letter) => text.push(letter),
            }
        }
    }

    /// What stands in brackets, which were opened.
    fn array(&mut self) -> Result<Node, String> {
        let start = self.at;
        let mut quote = None;
        loop {
            match self.next() {
                None | Some('\n') => return Err("unterminated array".to_owned()),
                Some('\\') if quote.is_some() => {
                    self.next();
                }
                Some(letter) if quote == Some(letter) => quote = None,
                Some(letter @ ('"' | '\'')) if quote.is_none() => quote = Some(letter),
                Some(']') if quote.is_none() => break,
                Some(_) => {}
            }
        }
        let inside = self.text[start..self.at - 1].to_owned();
        element(&inside)
    }

    fn filter(&mut self) -> Result<Node, String> {
        let start = self.at;
        let (mut depth, mut quote) = (1, None);
        while depth > 0 {
            match self.next() {
                None | Some('\n') => return Err("unterminated filter".to_owned()),
                Some('\\') => {
                    self.next();
                }
                Some(letter) if quote == Some(letter) => quote = None,
                Some(letter @ ('"' | '\'')) if quote.is_none() => quote = Some(letter),
                Some('(') if quote.is_none() => depth += 1,
                Some(')') if quote.is_none() => depth -= 1,
                Some(_) => {}
            }
        }
        let inside = self.text[start..self.at - 1].to_owned();
        if !self.eat("]") {
            return Err("unclosed array expect ]".to_owned());
        }
        comparison(&inside)
    }
}

fn terminates(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\n' | '\r' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}' | '\\')
}

/// The inside of an action, as a path.
fn path(text: &str) -> Result<Vec<Node>, String> {
    let braced = format!("{text}}}");
    match (Parser { text: &braced, at: 0 }).action()? {
        Action::Path(nodes) => Ok(nodes),
        Action::Range(_) | Action::End => Err(format!("unrecognized identifier {text}")),
    }
}

fn element(text: &str) -> Result<Node, String> {
    let text = text.trim();
    let parts = split(text);
    if parts.len() > 1 {
        let union: Result<Vec<Vec<Node>>, String> = parts.iter().map(|part| Ok(vec![element(part)?])).collect();
        return union.map(Node::Union);
    }
    if text == "*" {
        return Ok(Node::Wildcard);
    }
    if let Some(quote) = text.chars().next().filter(|letter| "'\"".contains(*letter)) {
        let inner = text[1..].strip_suffix(quote).ok_or_else(|| format!("invalid array index {text}"))?;
        // A dotted name in quotes is a path, unless its dots are escaped.
        let nodes = path(&format!(".{}", inner.strip_prefix('.').unwrap_or(inner)))?;
        return Ok(if nodes.len() == 1 { nodes[0].clone() } else { Node::List(nodes) });
    }
    let number = |text: &str| -> Result<Option<i64>, String> {
        if text.is_empty() {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| format!("invalid array index {text}"))
    };
    let parts: Vec<&str> = text.split(':').collect();
    match parts[..] {
        [one] => {
            let from = number(one)?.ok_or_else(|| format!("invalid array index {text}"))?;
            Ok(Node::Index(Slice { from: Some(from), to: Some(from + 1), step: None, single: true }))
        }
        [from, to] => Ok(Node::Index(Slice { from: number(from)?, to: number(to)?, step: None, single: false })),
        [from, to, step] => {
            Ok(Node::Index(Slice { from: number(from)?, to: number(to)?, step: number(step)?, single: false }))
        }
        _ => Err(format!("invalid array index {text}")),
    }
}

/// Splits at commas outside of quotes.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quote = None;
    for letter in text.chars() {
        match letter {
            ',' if quote.is_none() => {
                parts.push(String::new());
                continue;
            }
            letter if quote == Some(letter) => quote = None,
            '\'' | '"' if quote.is_none() => quote = Some(letter),
            _ => {}
        }
        parts.last_mut().expect("there is always a part").push(letter);
    }
    parts
}

fn comparison(text: &str) -> Result<Node, String> {
    const OPERATORS: [(&str, Operator); 6] = [
        ("==", Operator::Equal),
        ("!=", Operator::NotEqual),
        ("<=", Operator::LessOrEqual),
        (">=", Operator::GreaterOrEqual),
        ("<", Operator::Less),
        (">", Operator::Greater),
    ];
    let mut quote = None;
    for (at, letter) in text.char_indices() {
        match letter {
            letter if quote == Some(letter) => quote = None,
            '\'' | '"' if quote.is_none() => quote = Some(letter),
            '=' | '!' | '<' | '>' if quote.is_none() => {
                let found = OPERATORS.iter().find(|(word, _)| text[at..].starts_with(word));
                let (word, operator) = found.ok_or_else(|| format!("unrecognized filter operator {letter}"))?;
                let (left, right) = (path(text[..at].trim())?, path(text[at + word.len()..].trim())?);
                return Ok(Node::Filter(Box::new((left, *operator, right))));
            }
            _ => {}
        }
    }
    Ok(Node::Filter(Box::new((path(text.trim())?, Operator::Exists, Vec::new()))))
}
