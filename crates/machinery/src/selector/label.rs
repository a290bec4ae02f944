//! Label selectors, in the form of a query string and in the form of `metav1.LabelSelector`.

use std::fmt;

use serde_json::Value;

use crate::names;
use crate::object::Meta;
use crate::status::{FieldError, aggregate};

/// How a label is compared with the values of a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operator {
    /// `key=value`.
    Equals,
    /// `key==value`.
    DoubleEquals,
    /// `key!=value`.
    NotEquals,
    /// `key in (a,b)`.
    In,
    /// `key notin (a,b)`.
    NotIn,
    /// `key`.
    Exists,
    /// `!key`.
    DoesNotExist,
    /// `key>1`.
    GreaterThan,
    /// `key<1`.
    LessThan,
}

/// One condition on one label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

impl Requirement {
    /// A requirement, if the key, the values and their number suit the operator.
    pub fn new(key: String, operator: Operator, values: Vec<String>) -> Result<Self, String> {
        let mut errors = Vec::new();
        errors.extend(wrong_key("key", &key));
        match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                errors.push(invalid_values(&values, "for 'in', 'notin' operators, values set can't be empty"));
            }
            Operator::Equals | Operator::DoubleEquals | Operator::NotEquals if values.len() != 1 => {
                errors.push(invalid_values(&values, "exact-match compatibility requires one single value"));
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                errors.push(invalid_values(&values, "values set must be empty for exists and does not exist"));
            }
            Operator::GreaterThan | Operator::LessThan => {
                if values.len() != 1 {
                    errors.push(invalid_values(&values, "for 'Gt', 'Lt' operators, exactly one value is required"));
                }
                for (at, value) in values.iter().enumerate().filter(|(_, value)| value.parse::<i64>().is_err()) {
                    let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                    errors.push(FieldError::invalid(format!("values[{at}]"), value.as_str(), detail));
                }
            }
            _ => {}
        }
        for (at, value) in values.iter().enumerate() {
            let problems = names::is_label_value(value);
            if !problems.is_empty() {
                let path = format!("values[{at}][{key}]");
                errors.push(FieldError::invalid(path, value.as_str(), problems.join("; ")));
            }
        }
        if errors.is_empty() { Ok(Self { key, operator, values }) } else { Err(aggregate(&errors)) }
    }

    /// The label it looks at.
    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// What it compares with.
    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// Whether a label of this value, or its absence, satisfies it.
    pub fn matches(&self, value: Option<&str>) -> bool {
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => value.is_some_and(|value| self.has(value)),
            Operator::NotIn | Operator::NotEquals => value.is_none_or(|value| !self.has(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => self.compare(value).is_some_and(|(label, bound)| label > bound),
            Operator::LessThan => self.compare(value).is_some_and(|(label, bound)| label < bound),
        }
    }

    fn has(&self, value: &str) -> bool {
        self.values.iter().any(|candidate| candidate == value)
    }

    fn compare(&self, value: Option<&str>) -> Option<(i64, i64)> {
        Some((value?.parse().ok()?, self.values.first()?.parse().ok()?))
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, between, after) = match self.operator {
            Operator::Equals => ("", "=", ""),
            Operator::DoubleEquals => ("", "==", ""),
            Operator::NotEquals => ("", "!=", ""),
            Operator::In => ("", " in (", ")"),
            Operator::NotIn => ("", " notin (", ")"),
            Operator::Exists => ("", "", ""),
            Operator::DoesNotExist => ("!", "", ""),
            Operator::GreaterThan => ("", ">", ""),
            Operator::LessThan => ("", "<", ""),
        };
        let mut values: Vec<&str> = self.values.iter().map(String::as_str).collect();
        values.sort_unstable();
        write!(f, "{before}{}{between}{}{after}", self.key, values.join(","))
    }
}

/// Conditions on labels that must all hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
    nothing: bool,
}

impl LabelSelector {
    pub fn everything() -> Self {
        Self::default()
    }

    /// Selects no object: what an absent `metav1.LabelSelector` means.
    pub fn nothing() -> Self {
        Self { requirements: Vec::new(), nothing: true }
    }

    pub fn new(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self { requirements, nothing: false }
    }

    /// Reads the syntax of `?labelSelector=`. The error is upstream's message.
    pub fn parse(text: &str) -> Result<Self, String> {
        Parser::new(text).selector().map(Self::new)
    }

    /// Reads a `metav1.LabelSelector`. Null selects nothing, an empty one everything.
    pub fn from_value(selector: &Value) -> Result<Self, String> {
        if selector.is_null() {
            return Ok(Self::nothing());
        }
        let mut requirements = Vec::new();
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            let value = value.as_str().unwrap_or_default().to_owned();
            requirements.push(Requirement::new(key.clone(), Operator::Equals, vec![value])?);
        }
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            let operator = match expression["operator"].as_str().unwrap_or_default() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(format!("{other:?} is not a valid label selector operator")),
            };
            let key = expression["key"].as_str().unwrap_or_default().to_owned();
            let values = expression["values"].as_array().into_iter().flatten();
            let values = values.map(|value| value.as_str().unwrap_or_default().to_owned()).collect();
            requirements.push(Requirement::new(key, operator, values)?);
        }
        Ok(Self::new(requirements))
    }

    /// Reads a map of labels that must all be there (`spec.selector` of a Service, say). Nothing is checked.
    pub fn from_labels<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let requirement = |(key, value): (&str, &str)| Requirement {
            key: key.to_owned(),
            operator: Operator::Equals,
            values: vec![value.to_owned()],
        };
        Self::new(labels.into_iter().map(requirement).collect())
    }

    /// Whether it selects every object.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty() && !self.nothing
    }

    /// Whether it selects none.
    pub fn is_nothing(&self) -> bool {
        self.nothing
    }

    /// The conditions, sorted by key.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Whether labels, seen through their look-up, satisfy all conditions.
    pub fn matches<'a>(&self, lookup: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing && self.requirements.iter().all(|requirement| requirement.matches(lookup(&requirement.key)))
    }

    /// Whether the labels of a stored object satisfy all conditions.
    pub fn matches_meta(&self, meta: &Meta) -> bool {
        self.matches(|key| meta.label(key))
    }

    /// Whether a JSON map of labels (`metadata.labels`, or null) satisfies all conditions.
    pub fn matches_labels(&self, labels: &Value) -> bool {
        self.matches(|key| labels.get(key).map(|value| value.as_str().unwrap_or_default()))
    }

    /// The only value that a label may have, if there is just one.
    pub fn requires_exact_match(&self, key: &str) -> Option<&str> {
        let requirement = self.requirements.iter().find(|requirement| requirement.key == key)?;
        match (requirement.operator, requirement.values.as_slice()) {
            (Operator::Equals | Operator::DoubleEquals | Operator::In, [value]) => Some(value),
            _ => None,
        }
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.requirements.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

fn wrong_key(path: &str, key: &str) -> Option<FieldError> {
    let problems = names::is_qualified_name(key);
    (!problems.is_empty()).then(|| FieldError::invalid(path, key, problems.join("; ")))
}

fn invalid_values(values: &[String], detail: &str) -> FieldError {
    FieldError::invalid("values", values.to_vec(), detail)
}

/// A token and how it was written. `in` and `notin` are operators or names, depending on where they stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    End,
    Close,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    Greater,
    Identifier,
    In,
    Less,
    NotEquals,
    NotIn,
    Open,
}

struct Parser<'a> {
    tokens: Vec<(Token, &'a str)>,
    next: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        let mut parser = Self { tokens: Vec::new(), next: 0 };
        let mut rest = text;
        loop {
            let (token, literal, after) = scan(rest);
            parser.tokens.push((token, literal));
            if token == Token::End {
                return parser;
            }
            rest = after;
        }
    }

    /// The token at hand; never past the end, where the end repeats.
    fn peek_operator(&self) -> (Token, &'a str) {
        self.tokens.get(self.next).copied().unwrap_or((Token::End, ""))
    }

    fn peek(&self) -> (Token, &'a str) {
        match self.peek_operator() {
            (Token::In | Token::NotIn, literal) => (Token::Identifier, literal),
            other => other,
        }
    }

    fn take(&mut self) -> (Token, &'a str) {
        let token = self.peek();
        self.next += 1;
        token
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                (Token::Identifier | Token::Not, _) => {
                    let requirement =
                        self.requirement().map_err(|error| format!("unable to parse requirement: {error}"))?;
                    requirements.push(requirement);
                    match self.take() {
                        (Token::End, _) => return Ok(requirements),
                        (Token::Comma, _) => {
                            let (token, literal) = self.peek();
                            if !matches!(token, Token::Identifier | Token::Not) {
                                return Err(format!("found '{literal}', expected: identifier after ','"));
                            }
                        }
                        (_, literal) => {
                            return Err(format!("found '{literal}', expected: ',' or 'end of string'"));
                        }
                    }
                }
                (Token::End, _) => return Ok(requirements),
                (_, literal) => {
                    return Err(format!("found '{literal}', expected: !, identifier, or 'end of string'"));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let (mut token, mut literal) = self.take();
        let negated = token == Token::Not;
        if negated {
            (token, literal) = self.take();
        }
        if token != Token::Identifier {
            return Err(format!("found '{literal}', expected: identifier"));
        }
        if let Some(error) = wrong_key("<nil>", literal) {
            return Err(error.to_string());
        }
        let key = literal.to_owned();
        if negated {
            return Requirement::new(key, Operator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Requirement::new(key, Operator::Exists, Vec::new());
        }
        let operator = self.operator()?;
        let mut values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => vec![self.exact_value()?],
        };
        values.sort_unstable();
        values.dedup();
        Requirement::new(key, operator, values)
    }

    fn operator(&mut self) -> Result<Operator, String> {
        let (token, literal) = self.peek_operator();
        self.next += 1;
        Ok(match token {
            Token::In => Operator::In,
            Token::Equals => Operator::Equals,
            Token::DoubleEquals => Operator::DoubleEquals,
            Token::Greater => Operator::GreaterThan,
            Token::Less => Operator::LessThan,
            Token::NotIn => Operator::NotIn,
            Token::NotEquals => Operator::NotEquals,
            _ => {
                return Err(format!("found '{literal}', expected: in, notin, =, ==, !=, gt, lt"));
            }
        })
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        let (token, literal) = self.take();
        if token != Token::Open {
            return Err(format!("found '{literal}' expected: '('"));
        }
        let (token, literal) = self.peek();
        match token {
            Token::Identifier | Token::Comma => {
                let values = self.identifiers()?;
                if self.take().0 != Token::Close {
                    return Err(format!("found '{literal}', expected: ')'"));
                }
                Ok(values)
            }
            Token::Close => {
                self.next += 1;
                Ok(vec![String::new()])
            }
            _ => Err(format!("found '{literal}', expected: ',', ')' or identifier")),
        }
    }

    /// A list of values between commas, any of which may be empty.
    fn identifiers(&mut self) -> Result<Vec<String>, String> {
        let mut values: Vec<String> = Vec::new();
        loop {
            match self.take() {
                (Token::Identifier, literal) => {
                    values.push(literal.to_owned());
                    match self.peek() {
                        (Token::Comma, _) => {}
                        (Token::Close, _) => return Ok(values),
                        (_, literal) => {
                            return Err(format!("found '{literal}', expected: ',' or ')'"));
                        }
                    }
                }
                (Token::Comma, _) => {
                    if values.is_empty() {
                        values.push(String::new());
                    }
                    match self.peek().0 {
                        Token::Close => {
                            values.push(String::new());
                            return Ok(values);
                        }
                        Token::Comma => values.push(String::new()),
                        _ => {}
                    }
                }
                (_, literal) => {
                    return Err(format!("found '{literal}', expected: ',', or identifier"));
                }
            }
        }
    }

    fn exact_value(&mut self) -> Result<String, String> {
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Ok(String::new());
        }
        match self.take() {
            (Token::Identifier, literal) => Ok(literal.to_owned()),
            (_, literal) => Err(format!("found '{literal}', expected: identifier")),
        }
    }
}

fn is_special(byte: u8) -> bool {
    matches!(byte, b'=' | b'!' | b'(' | b')' | b',' | b'>' | b'<')
}

fn symbol(text: &str) -> Option<Token> {
    Some(match text {
        ")" => Token::Close,
        "," => Token::Comma,
        "!" => Token::Not,
        "==" => Token::DoubleEquals,
        "=" => Token::Equals,
        ">" => Token::Greater,
        "<" => Token::Less,
        "!=" => Token::NotEquals,
        "(" => Token::Open,
        _ => return None,
    })
}

/// The first token of a text, and what follows it.
fn scan(text: &str) -> (Token, &str, &str) {
    let text = text.trim_start_matches([' ', '\t', '\r', '\n']);
    let bytes = text.as_bytes();
    // A zero byte ends the text, as it does upstream.
    let Some(&first) = bytes.first().filter(|&&byte| byte != 0) else { return (Token::End, "", "") };
    if is_special(first) {
        let run = bytes.iter().take_while(|&&byte| is_special(byte)).count();
        // Every symbol alone is a token, and the longest token has two: no run of symbols is without one.
        let length = if run > 1 && symbol(&text[..2]).is_some() { 2 } else { 1 };
        let (literal, rest) = text.split_at(length);
        return (symbol(literal).expect("every special byte alone is a symbol"), literal, rest);
    }
    let end = bytes.iter().position(|&byte| is_special(byte) || byte.is_ascii_whitespace() || byte == 0);
    let (literal, rest) = text.split_at(end.unwrap_or(text.len()));
    let token = match literal {
        "in" => Token::In,
        "notin" => Token::NotIn,
        _ => Token::Identifier,
    };
    (token, literal, rest)
}

#[cfg(test)]
mod tests;
