//! A story as lines: a tree of objects, a bar per hop, and a sentence about the longest. Pure.

use std::fmt::Write as _;
use std::time::Duration;

use super::story::{Chapter, Interval, Row, Story};

/// Eighths of a cell.
const EIGHTHS: [char; 9] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
const NARROWEST: usize = 10;
/// Columns before the bars: the label, how often, how long.
const LABEL: usize = 46;
const TIME: usize = 9;

pub fn draw(story: &Story, width: usize) -> String {
    let mut text = String::new();
    if story.begun.is_none() {
        text += "Nothing is remembered of it: it was long ago, or the server or the node was restarted since.\n";
        silent(story, &mut text);
        return text;
    }
    let bars = width.saturating_sub(LABEL + TIME + 3).max(NARROWEST);
    for chapter in &story.chapters {
        heading(chapter, &mut text);
        for row in &chapter.rows {
            let label = label(chapter, row);
            let bar = bar(&row.times, story.length, bars);
            let line = format!("{:<LABEL$} {:>TIME$}  {bar}", cut(&label, LABEL), time(row.total()));
            text += line.trim_end();
            text.push('\n');
            // What a turn without work decided goes without saying.
            for said in row.said.iter().filter(|said| *said != "nothing to do") {
                let _ = writeln!(text, "{}     ↳ {said}", "  ".repeat(chapter.depth));
            }
        }
    }
    if !story.gaps.is_empty() {
        let label = format!("   between hops ×{}", story.gaps.len());
        let all: Duration = story.gaps.iter().map(|gap| gap.to - gap.from).sum();
        let line = format!("{label:<LABEL$} {:>TIME$}  {}", time(all), bar(&story.gaps, story.length, bars));
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let between = story.length.saturating_sub(story.accounted);
    let _ = writeln!(
        text,
        "\n{} from the first hop to the last, of which {} between hops.",
        time(story.length),
        time(between)
    );
    text += &way(story);
    if let Some((chapter, row)) = story.longest() {
        let _ = writeln!(text, "{}", explained(story, chapter, row));
    }
    if story.earlier > 0 {
        let _ = writeln!(text, "{} earlier spans are remembered: --all shows them.", story.earlier);
    }
    silent(story, &mut text);
    text
}

/// How many parts of a way are named.
const NAMED: usize = 4;

/// What became of the time until the last pod was ready.
fn way(story: &Story) -> String {
    let ways = story.chapters.iter().filter_map(|chapter| Some((chapter, chapter.way.as_ref()?)));
    let Some((chapter, way)) = ways.max_by_key(|(_, way)| way.length) else { return String::new() };
    let (named, others) = way.parts.split_at(way.parts.len().min(NAMED));
    let mut parts: Vec<String> = named.iter().map(|part| format!("{} {}", part.name, time(part.took))).collect();
    if !others.is_empty() {
        parts.push(format!("{} others {}", others.len(), time(others.iter().map(|part| part.took).sum())));
    }
    parts.push(format!("between hops {}", time(way.between())));
    format!("{} was ready {} after the first hop: {}.\n", chapter.member.name, time(way.length), parts.join(", "))
}

fn silent(story: &Story, text: &mut String) {
    for (node, why) in &story.silent {
        let _ = writeln!(text, "Node {node} said nothing: {why}");
    }
}

/// The object, as deep as it is below what was asked about.
fn heading(chapter: &Chapter, text: &mut String) {
    let branch = if chapter.depth == 0 { String::new() } else { format!("{}└ ", "  ".repeat(chapter.depth - 1)) };
    let node = if chapter.member.node.is_empty() { String::new() } else { format!("  on {}", chapter.member.node) };
    let _ = writeln!(text, "{branch}{}{node}", chapter.member.name);
}

fn label(chapter: &Chapter, row: &Row) -> String {
    let indent = "  ".repeat(chapter.depth);
    let times = if row.times.len() > 1 { format!(" ×{}", row.times.len()) } else { String::new() };
    let by = if row.by.is_empty() { String::new() } else { format!(" {}", row.by) };
    if row.stage.is_empty() {
        return format!("{indent}{:>2} {}{by}{times}", row.hop, row.name);
    }
    format!("{indent}{:>2}   {}{by}{times}", row.hop, row.stage)
}

/// As many letters as fit.
fn cut(text: &str, letters: usize) -> String {
    if text.chars().count() <= letters {
        return text.to_owned();
    }
    text.chars().take(letters - 1).chain(['…']).collect()
}

/// A duration in three digits or so.
pub fn time(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match seconds {
        _ if seconds < 0.01 => format!("{:.2} ms", seconds * 1e3),
        _ if seconds < 1.0 => format!("{:.0} ms", seconds * 1e3),
        _ if seconds < 100.0 => format!("{seconds:.2} s"),
        _ => format!("{seconds:.0} s"),
    }
}

/// Cells that say when: what is in a cell for a moment shows, so that nothing is lost beside something long.
fn bar(times: &[Interval], length: Duration, cells: usize) -> String {
    let whole = length.as_secs_f64().max(f64::MIN_POSITIVE);
    let mut filled = vec![0.0_f64; cells];
    for time in times {
        let (from, to) = (time.from.as_secs_f64() / whole * cells as f64, time.to.as_secs_f64() / whole * cells as f64);
        let first = (from as usize).min(cells - 1);
        let last = (to.ceil() as usize).clamp(first + 1, cells);
        for (at, cell) in filled.iter_mut().enumerate().take(last).skip(first) {
            let part = (to.min((at + 1) as f64) - from.max(at as f64)).max(0.0);
            *cell = (*cell + part).clamp(0.125, 1.0);
        }
    }
    let bar: String = filled.iter().map(|part| EIGHTHS[(part * 8.0).round() as usize]).collect();
    bar.trim_end().to_owned()
}

/// A sentence about what took longest, and what to do about it where there is something to do.
fn explained(story: &Story, chapter: &Chapter, row: &Row) -> String {
    let share = row.total().as_secs_f64() / story.length.as_secs_f64().max(f64::MIN_POSITIVE) * 100.0;
    let (object, by, took) = (&chapter.member.name, &row.by, time(row.total()));
    let (what, advice) = match (row.hop, row.stage.as_str()) {
        (11, "pull") => (
            format!("getting the image of container {by} of {object}"),
            "put the image on the node beforehand, or make it smaller",
        ),
        (11, "sandbox") => {
            (format!("the sandbox of {object} with its network"), "that is the runtime's and the CNI plug-in's time")
        }
        (11, "volumes") => (format!("the volumes of {object}"), "kubectl describe pod says what they waited for"),
        (11, "create-container" | "start-container") => {
            (format!("container {by} of {object} in the runtime ({})", row.stage), "that is the runtime's time")
        }
        (12, "probe") => (
            format!("waiting until container {by} of {object} passed its readiness probe"),
            "it starts slowly, or initialDelaySeconds and periodSeconds are long",
        ),
        (10, "queue") => (format!("{object} in the scheduler's queue"), "kubectl describe pod says what it waited for"),
        (4 | 6, "webhook") => (format!("webhook {by}"), "every request that it matches waits for it"),
        (4 | 6, "policy") => (format!("policy {by}"), "its expressions are costly"),
        _ if row.stage.is_empty() => (format!("{} of {object}", row.name), ""),
        _ => (format!("{} of {object}", row.stage), ""),
    };
    let advice = if advice.is_empty() { String::new() } else { format!(": {advice}") };
    format!("The longest part, {took} ({share:.0} %), was {what}{advice}.")
}

#[cfg(test)]
mod tests {
    use super::super::gather::Gathered;
    use super::super::story::tests::{family, member, span};
    use super::*;

    #[test]
    fn a_family_is_drawn_as_a_tree_with_a_bar_for_each_hop() {
        let drawn = draw(&Story::of(&family(), false), 80);
        let expected = "\
deployment/web
 2 hop 2                                         1.00 ms  ▏
 4 hop 4                                           10 ms  ▌
 4   webhook side.car                            8.00 ms  ▍
 7 hop 7                                         2.00 ms  ▏
 9 hop 9 deployment ×2                           6.00 ms  ▏▏
 7   later writes                                1.00 ms   ▏
└ replicaset/web-1
   9 hop 9 replicaset                            4.00 ms  ▏
  └ pod/web-1-a  on n1
    10   bind                                    5.00 ms   ▎
    11   pod                                      470 ms   ▋████████████████████
    11   pull web                                 300 ms   ▎█████████████
    11   sandbox                                  100 ms                ▏████▍
   between hops ×3                               5.00 ms  ▎▏

500 ms from the first hop to the last, of which 5.00 ms between hops.
The longest part, 300 ms (60 %), was getting the image of container web of pod/web-1-a: put the image on the node beforehand, or make it smaller.
";
        assert_eq!(drawn, expected, "\n{drawn}");
    }

    #[test]
    fn what_was_decided_stands_below_the_bar() {
        let mut family = family();
        family.spans[4].decided = "created ReplicaSet web-1 with 1 pods".to_owned();
        family.spans[5].decided = "nothing to do".to_owned();
        let drawn = draw(&Story::of(&family, false), 80);
        assert!(
            drawn.contains(
                "deployment ×2                           6.00 ms  ▏▏\n     ↳ created ReplicaSet web-1 with 1 pods\n 7"
            ),
            "{drawn}"
        );
        assert!(!drawn.contains("nothing to do"), "{drawn}");
    }

    #[test]
    fn a_pod_that_is_ready_is_told_with_what_its_time_went_into() {
        let mut family = family();
        family.spans.push(span("p", (12, "status", ""), 0, 510, 10));
        let drawn = draw(&Story::of(&family, false), 80);
        let expected = "pod/web-1-a was ready 520 ms after the first hop: pull web 300 ms, sandbox 100 ms, pod 70 ms, status 10 ms, \
             7 others 25 ms, between hops 15 ms.\n";
        assert!(drawn.contains(expected), "{drawn}");
    }

    #[test]
    fn a_moment_shows_beside_something_long() {
        let interval = |from, to| Interval { from: Duration::from_micros(from), to: Duration::from_micros(to) };
        let length = Duration::from_secs(100);
        assert_eq!(bar(&[interval(0, 1)], length, 10), "▏");
        assert_eq!(bar(&[interval(99_999_999, 100_000_000)], length, 10), "         ▏");
        assert_eq!(bar(&[interval(50_000_000, 100_000_000)], length, 10), "     █████");
    }

    #[test]
    fn durations_are_short() {
        let shown = [3_u64, 12_345, 999_000, 1_234_567, 250_000_000].map(|micros| time(Duration::from_micros(micros)));
        assert_eq!(shown, ["0.00 ms", "12 ms", "999 ms", "1.23 s", "250 s"]);
    }

    #[test]
    fn who_remembers_nothing_and_who_says_nothing_is_told() {
        let gathered = Gathered {
            members: vec![member("p", "pod/a", "")],
            silent: vec![("n1".to_owned(), "dial tcp: refused".to_owned())],
            ..Gathered::default()
        };
        let drawn = draw(&Story::of(&gathered, false), 80);
        assert!(drawn.starts_with("Nothing is remembered of it"), "{drawn}");
        assert!(drawn.ends_with("Node n1 said nothing: dial tcp: refused\n"), "{drawn}");
    }
}
