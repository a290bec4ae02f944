//! The text in the editor: its header, its comments, and whether anything is left of it. Pure.

/// Why a file has to be edited again.
pub struct Reason {
    pub head: String,
    pub other: Vec<String>,
}

pub fn header(last_applied: bool, reasons: &[Reason]) -> String {
    let mut text = if last_applied {
        "# Please edit the 'last-applied-configuration' annotations below.\n# Lines beginning with a '#' will be ignored, and an empty file will abort the edit.\n#\n"
    } else {
        "# Please edit the object below. Lines beginning with a '#' will be ignored,\n# and an empty file will abort the edit. If an error occurs while saving this file will be\n# reopened with the relevant failures.\n#\n"
    }
    .to_owned();
    for reason in reasons {
        let colon = if reason.other.is_empty() { "" } else { ":" };
        text += &format!("# {}{colon}\n", commented(&reason.head));
        for other in &reason.other {
            text += &format!("# * {}\n", commented(other));
        }
        text += "#\n";
    }
    text
}

/// Every line of it a comment.
fn commented(text: &str) -> String {
    text.trim_end_matches('\n').replace('\n', "\n# ")
}

/// What is compared: lines that say something.
pub fn without_comments(text: &str) -> String {
    let says = |line: &&str| !line.trim_start().starts_with('#');
    text.lines().filter(says).collect::<Vec<_>>().join("\n").trim().to_owned()
}

/// What was written, without the header that stood over it.
pub fn without_leading_comments(text: &str) -> String {
    let kept = text.split_inclusive('\n').skip_while(|line| line.starts_with('#') || line.trim().is_empty());
    kept.collect()
}

pub fn has_lines(text: &str) -> bool {
    text.lines().map(str::trim).any(|line| !line.is_empty() && !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_stand_in_the_header() {
        let reasons = [Reason { head: "a\nb".to_owned(), other: vec!["c".to_owned()] }];
        assert!(header(false, &reasons).ends_with("failures.\n#\n# a\n# b:\n# * c\n#\n"));
        assert!(header(true, &[]).starts_with("# Please edit the 'last-applied-configuration' annotations below.\n"));
    }

    #[test]
    fn comments_say_nothing() {
        assert_eq!(without_comments("# x\na: b\n  # y\n"), "a: b");
        assert_eq!(without_leading_comments("# x\n#\na: b\n# y\n"), "a: b\n# y\n");
        assert!(!has_lines("# x\n\n"));
        assert!(has_lines("# x\na"));
    }
}
