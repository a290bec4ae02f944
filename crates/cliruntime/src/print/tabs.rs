//! Columns that are as wide as what stands in them, as kubectl's tabwriter makes them: at least 6 wide, 3 apart.

const LEAST: usize = 6;
const PADDING: usize = 3;

/// Text with tabs, to be brought into columns.
#[derive(Debug, Default)]
pub struct Tabs {
    /// The widths of columns so far: later lines are never narrower.
    widest: Vec<usize>,
    remember: bool,
    least: usize,
    padding: usize,
}

impl Tabs {
    /// Columns that remember how wide they were, for tables that grow.
    pub fn remembering() -> Self {
        Self { widest: Vec::new(), remember: true, least: LEAST, padding: PADDING }
    }

    pub fn new() -> Self {
        Self { remember: false, ..Self::remembering() }
    }

    /// Columns with other distances.
    pub fn with(least: usize, padding: usize) -> Self {
        Self { widest: Vec::new(), remember: false, least, padding }
    }

    /// Brings lines of cells, separated by tabs, into columns. A column is what lines one after the other have between tabs.
    pub fn align(&mut self, text: &str) -> String {
        let lines: Vec<Vec<&str>> = text.split('\n').map(|line| line.split('\t').collect()).collect();
        let mut out = String::with_capacity(text.len() * 2);
        let mut widths = Vec::new();
        self.format(&lines, 0, lines.len(), &mut widths, &mut out);
        out
    }

    fn format(&mut self, lines: &[Vec<&str>], from: usize, to: usize, widths: &mut Vec<usize>, out: &mut String) {
        let column = widths.len();
        let (mut begun, mut at) = (from, from);
        while at < to {
            if column + 1 >= lines[at].len() {
                at += 1;
                continue;
            }
            write(lines, begun, at, widths, out);
            begun = at;
            let mut width = self.least;
            while at < to && column + 1 < lines[at].len() {
                width = width.max(lines[at][column].chars().count() + self.padding);
                at += 1;
            }
            if self.remember {
                if self.widest.len() <= column {
                    self.widest.resize(column + 1, 0);
                }
                width = width.max(self.widest[column]);
                self.widest[column] = width;
            }
            widths.push(width);
            self.format(lines, begun, at, widths, out);
            widths.pop();
            begun = at;
        }
        write(lines, begun, to, widths, out);
    }
}

fn write(lines: &[Vec<&str>], from: usize, to: usize, widths: &[usize], out: &mut String) {
    for (at, line) in lines.iter().enumerate().take(to).skip(from) {
        for (place, cell) in line.iter().enumerate() {
            out.push_str(cell);
            if place + 1 < line.len() {
                let width = widths.get(place).copied().unwrap_or_default();
                let missing = width.saturating_sub(cell.chars().count());
                out.extend(std::iter::repeat_n(' ', missing));
            }
        }
        if at + 1 < lines.len() {
            out.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let text = Tabs::new().align("NAME\tREADY\tAGE\na\t1/1\t5s\nlonger-name\t0/1\t10m\n");
        assert_eq!(text, "NAME          READY   AGE\na             1/1     5s\nlonger-name   0/1     10m\n");
    }

    #[test]
    fn a_column_ends_where_a_line_does_not_have_it() {
        let text = Tabs::new().align("a\tb\nlonger-than-six\tc\nplain\nx\ty\n");
        assert_eq!(text, "a                 b\nlonger-than-six   c\nplain\nx     y\n");
    }

    #[test]
    fn widths_are_remembered_where_a_table_grows() {
        let mut tabs = Tabs::remembering();
        tabs.align("longer-name\tx\n");
        assert_eq!(tabs.align("a\tx\n"), "a             x\n");
        assert_eq!(Tabs::new().align("a\tx\n"), "a     x\n");
    }
}
