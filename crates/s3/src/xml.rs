//! The few things that are read out of S3's answers. They are made by programs and are flat, so what is between two tags is looked for, nothing more.

/// The text of the first element of this name.
pub(crate) fn text(document: &str, name: &str) -> Option<String> {
    elements(document, name).next().map(unescape)
}

/// What is in each element of this name, which may have elements in it.
pub(crate) fn elements<'a>(document: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let (begin, end) = (format!("<{name}>"), format!("</{name}>"));
    let mut rest = document;
    std::iter::from_fn(move || {
        let from = rest.find(&begin)? + begin.len();
        let length = rest[from..].find(&end)?;
        let found = &rest[from..from + length];
        rest = &rest[from + length + end.len()..];
        Some(found)
    })
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

pub(crate) fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        plain.push_str(&rest[..at]);
        rest = &rest[at..];
        let Some(end) = rest.find(';') else { break };
        match letter(&rest[1..end]) {
            Some(letter) => plain.push(letter),
            None => plain.push_str(&rest[..=end]),
        }
        rest = &rest[end + 1..];
    }
    plain.push_str(rest);
    plain
}

fn letter(entity: &str) -> Option<char> {
    match entity {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        number => {
            let number = number.strip_prefix('#')?;
            let code = match number.strip_prefix('x') {
                Some(digits) => u32::from_str_radix(digits, 16).ok()?,
                None => number.parse().ok()?,
            };
            char::from_u32(code)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_found_and_read() {
        let document =
            "<L><Contents><Key>a&amp;b</Key></Contents><Contents><Key>&#252;&quot;&#x21;</Key></Contents><X></L>";
        let keys: Vec<_> = elements(document, "Contents").filter_map(|one| text(one, "Key")).collect();
        assert_eq!(keys, ["a&b", "ü\"!"]);
        assert_eq!((text(document, "X"), text(document, "Y")), (None, None));
        assert_eq!(unescape("a & b &odd; &amp"), "a & b &odd; &amp");
        assert_eq!(unescape(&escape("<a>&\"")), "<a>&\"");
    }
}
