//! Text in columns, aligned as Go's `text/tabwriter` does it without flags: cells end at a tab, and a column is a run of
//! lines that all have a cell there. What follows the last tab of a line is not in a column.

/// How columns are made.
#[derive(Debug, Clone, Copy)]
pub struct Tabs {
    /// The least width of a column, its padding included.
    pub min_width: usize,
    /// Spaces between a column's widest cell and the next column.
    pub padding: usize,
}

/// A line as its cells, the last one being what follows the last tab.
type Line<'a> = Vec<&'a str>;

/// The text with its tabs replaced by spaces.
pub fn align(text: &str, tabs: Tabs) -> String {
    let mut lines: Vec<Line<'_>> = Vec::new();
    let mut rest = text;
    // A form feed ends a line and a vertical tab a cell, as in Go.
    while let Some(end) = rest.find(['\n', '\x0c']) {
        lines.push(cells(&rest[..end]));
        // What is before a form feed does not align with what is after it.
        if rest.as_bytes()[end] == b'\x0c' {
            lines.push(Vec::new());
        }
        rest = &rest[end + 1..];
    }
    let mut out = String::with_capacity(text.len() * 2);
    let complete = lines.len();
    lines.push(cells(rest));
    let mut widths = vec![Vec::new(); lines.len()];
    measure(&lines, &mut widths, 0, 0..lines.len(), tabs);
    for (at, (line, widths)) in lines.iter().zip(&widths).enumerate() {
        if line.is_empty() {
            continue;
        }
        for (cell, text) in line.iter().enumerate() {
            out.push_str(text);
            if let Some(width) = widths.get(cell) {
                out.extend(std::iter::repeat_n(' ', width - count(text)));
            }
        }
        if at < complete {
            out.push('\n');
        }
    }
    out
}

fn cells(line: &str) -> Line<'_> {
    line.split(['\t', '\x0b']).collect()
}

fn count(text: &str) -> usize {
    text.chars().count()
}

/// Finds the blocks of lines that have a cell in `column`, and within each those of the column to its right.
fn measure(lines: &[Line<'_>], widths: &mut [Vec<usize>], column: usize, within: std::ops::Range<usize>, tabs: Tabs) {
    let has = |line: usize| lines[line].len() > column + 1;
    let mut at = within.start;
    while at < within.end {
        if !has(at) {
            at += 1;
            continue;
        }
        let start = at;
        while at < within.end && has(at) {
            at += 1;
        }
        let widest = (start..at).map(|line| count(lines[line][column]) + tabs.padding).max().unwrap_or(0);
        let width = widest.max(tabs.min_width);
        widths[start..at].iter_mut().for_each(|of| of.push(width));
        measure(lines, widths, column + 1, start..at, tabs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_runs_of_lines_that_have_a_cell_there() {
        let tabs = Tabs { min_width: 0, padding: 2 };
        for (text, expect) in [
            ("", ""),
            ("a\tb\n", "a  b\n"),
            ("a\tb\nlonger\tc", "a       b\nlonger  c"),
            ("a\tb\nalone\nlonger\tc\n", "a  b\nalone\nlonger  c\n"),
            ("a\t\tb\nc\td\n", "a    b\nc  d\n"),
            ("é\tb\nab\tc\n", "é   b\nab  c\n"),
            ("a\tb\tc\nd\te\nf\tgg\th\n", "a  b  c\nd  e\nf  gg  h\n"),
            ("a\tb\x0clonger\tc\n", "a  b\nlonger  c\n"),
        ] {
            assert_eq!(align(text, tabs), expect, "{text:?}");
        }
        assert_eq!(align("a\tb\n", Tabs { min_width: 6, padding: 3 }), "a     b\n");
    }
}
