//! The page in a real Chromium, as `trireme ui` opens it: how soon a long table is there, whether it scrolls without stutter, what the tab keeps
//! in memory, whether it keeps up with many updates, and what an open page costs the server.
//!
//! Debian's Chromium without a window draws in software, on the cores that the server has too: a desktop is rather faster.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use testkit::{Browser, Server};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::load::{self, JSON, Media};
use crate::process::{cpu_seconds, private_megabytes};
use crate::report::Line;
use crate::server::ALONE;
use crate::{Failure, Options, Target, binary, pods, start};

const SPACE: &str = "page";
const ROWS: usize = 10_000;
const OPENED: usize = 5;
const SCROLLED: Duration = Duration::from_secs(5);
const UPDATED: Duration = Duration::from_secs(10);
const UPDATES_A_SECOND: u32 = 100;
/// How long each view is left open.
const OPEN: Duration = Duration::from_secs(10);
const TABLE: &str = "#/list/core/v1/pods";

/// Notes when the first rows were painted: the frame after they were in the document is over.
const FIRST_ROWS: &str = "window.firstRows = new Promise((met) => { const look = () => { \
     if (document.querySelector('.rows .row')) requestAnimationFrame(() => setTimeout(() => met(performance.now()))); \
     else requestAnimationFrame(look); }; requestAnimationFrame(look); });";

/// `trireme ui`, which ends with this.
struct Ui {
    _process: Child,
    link: String,
}

impl Ui {
    async fn start(kubeconfig: &Path) -> Result<Self, Failure> {
        let mut command = Command::new(binary());
        command.args(["ui", "--print-only"]).env("KUBECONFIG", kubeconfig).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn()?;
        let output = process.stdout.take().ok_or("no output")?;
        let link = BufReader::new(output).lines().next_line().await?.ok_or("no link")?;
        Ok(Self { _process: process, link })
    }
}

pub async fn run(options: &Options) -> Result<(), Failure> {
    let mut server = Server::start(start(&ALONE)).await;
    let target = Target::new(&server.kubeconfig(), server.id(), options.scale)?;
    let count = options.scaled(ROWS, 1_000);
    pods::space(target.client(), SPACE).await?;
    pods::fill(&target, SPACE, count).await?;
    let ui = Ui::start(&server.kubeconfig()).await?;
    let browser = Browser::start().await;
    browser.look(1280, 800, "dark").await;
    browser.before_pages(FIRST_ROWS).await;
    opened(&browser, &ui.link, count).await?;
    scrolled(&browser, "page_scroll").await?;
    updated(&browser, &target, count).await?;
    open(&browser, &server).await?;
    match browser.complaints() {
        complaints if complaints.is_empty() => {}
        complaints => return Err(format!("the page complained: {complaints:?}").into()),
    }
    drop((browser, ui));
    server.stop().await;
    Ok(())
}

fn number(value: &Value) -> Result<f64, Failure> {
    value.as_f64().ok_or_else(|| format!("{value} is no number").into())
}

/// From the address to the first rows on the screen, and to all of them in memory.
async fn opened(browser: &Browser, link: &str, count: usize) -> Result<(), Failure> {
    let (mut first, mut all) = (Vec::new(), Vec::new());
    for _ in 0..OPENED {
        browser.open(&format!("{link}{TABLE}")).await;
        let painted = number(&browser.evaluate("window.firstRows").await)?;
        let live = format!(
            "document.querySelector('.state.live') && document.querySelector('.count b').textContent === '{count}' && performance.now()"
        );
        all.push(Duration::from_secs_f64(number(&browser.until("all rows", &live).await)? / 1e3));
        first.push(Duration::from_secs_f64(painted / 1e3));
    }
    Line::new("page_first_rows").figure("rows", count as f64).latencies(&mut first).at_most("max_ms", 1_000.0).print();
    Line::new("page_all_rows").figure("rows", count as f64).latencies(&mut all).print();
    Ok(())
}

/// Scrolls through the whole table, a few rows with every frame; rows have to be where somebody looks.
const SCROLL: &str = "new Promise((done) => { \
     const box = document.getElementById('rows'); const frames = []; let last; let blank = 0; const begun = performance.now(); \
     const turn = (now) => { \
       if (last !== undefined) { \
         frames.push(now - last); \
         const { left, top, height } = box.getBoundingClientRect(); \
         if (!document.elementFromPoint(left + 40, top + height / 2)?.closest('.row')) blank++; \
       } \
       last = now; \
       box.scrollTop = box.scrollTop + box.clientHeight >= box.scrollHeight - 1 ? 0 : box.scrollTop + 200; \
       if (now - begun < LONG) requestAnimationFrame(turn); \
       else done({ seconds: frames.reduce((sum, one) => sum + one, 0) / 1000, frames: frames.length, \
         late: frames.filter((one) => one > 25).length, longest: Math.max(...frames), blank }); \
     }; requestAnimationFrame(turn); })";

struct Frames {
    per_second: f64,
    late: f64,
    longest: f64,
    blank: f64,
}

async fn scroll(browser: &Browser, length: Duration) -> Result<Frames, Failure> {
    let told = browser.evaluate(&SCROLL.replace("LONG", &length.as_millis().to_string())).await;
    let frames = number(&told["frames"])?;
    Ok(Frames {
        per_second: frames / number(&told["seconds"])?,
        late: number(&told["late"])? / frames * 100.0,
        longest: number(&told["longest"])?,
        blank: number(&told["blank"])?,
    })
}

impl Frames {
    fn on(&self, line: Line) -> Line {
        line.figure("frames_per_second", self.per_second)
            .figure("late_percent", self.late)
            .figure("longest_ms", self.longest)
            .figure("blank_frames", self.blank)
            // A screen's own rate is a little beside 60.
            .at_least("frames_per_second", 59.0)
            .at_most("blank_frames", 0.0)
    }
}

async fn scrolled(browser: &Browser, bench: &str) -> Result<(), Failure> {
    let (worked, begun) = (browser.worked().await, Instant::now());
    let frames = scroll(browser, SCROLLED).await?;
    let busy = (browser.worked().await - worked) / begun.elapsed().as_secs_f64();
    let memory = private_megabytes(browser.tab_process().await)?;
    frames
        .on(Line::new(bench))
        .figure("main_thread_percent", busy * 100.0)
        .figure("megabytes", memory)
        .at_most("megabytes", 150.0)
        .print();
    Ok(())
}

/// Statuses of pods change all the time, while somebody scrolls; then the last change is looked for on the screen.
async fn updated(browser: &Browser, target: &Target, count: usize) -> Result<(), Failure> {
    let updates = UPDATED.as_secs() as u32 * UPDATES_A_SECOND;
    let media = Media { content: "application/merge-patch+json", ..JSON };
    let write = async |pod: usize, reason: String| -> Result<(), Failure> {
        let path = format!("/api/v1/namespaces/{SPACE}/pods/p{pod}/status");
        let body = json!({"status": {"reason": reason}}).to_string().into();
        load::send_as(target.client(), media, Method::PATCH, &path, Some(body)).await.map(drop)
    };
    let (worked, begun) = (browser.worked().await, Instant::now());
    let writes = async {
        let mut beat = tokio::time::interval(Duration::from_secs(1) / UPDATES_A_SECOND);
        for update in 0..updates {
            beat.tick().await;
            write(update as usize * 7 % count, format!("Update{update}")).await?;
        }
        Ok::<_, Failure>(())
    };
    let (written, frames) = tokio::join!(writes, scroll(browser, UPDATED));
    written?;
    let (frames, took) = (frames?, begun.elapsed().as_secs_f64());
    let busy = (browser.worked().await - worked) / took;
    // Pod p0 is in the first row.
    browser.evaluate("document.getElementById('rows').scrollTop = 0").await;
    let sent = Instant::now();
    write(0, "TheLast".to_owned()).await?;
    browser.until("the last update", "document.getElementById('rows').innerText.includes('TheLast')").await;
    let shown = sent.elapsed().as_secs_f64() * 1e3;
    let memory = private_megabytes(browser.tab_process().await)?;
    frames
        .on(Line::new("page_updates").figure("updates_per_second", f64::from(updates) / took))
        .figure("main_thread_percent", busy * 100.0)
        .figure("last_shown_ms", shown)
        .at_most("last_shown_ms", 1_000.0)
        .figure("megabytes", memory)
        .at_most("megabytes", 150.0)
        .print();
    Ok(())
}

/// What the server does for a page that somebody has left open, of a core.
async fn open(browser: &Browser, server: &Server) -> Result<(), Failure> {
    let id = server.id().ok_or("the server is gone")?;
    let mut line = Line::new("page_open");
    for (name, view) in [("table_percent", TABLE), ("overview_percent", "#/"), ("metrics_percent", "#/metrics")] {
        browser.go(view).await;
        browser.until("the view", "!!document.querySelector('main').innerText").await;
        // What opening it takes is not counted.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let (used, begun) = (cpu_seconds(id)?, Instant::now());
        tokio::time::sleep(OPEN).await;
        let percent = (cpu_seconds(id)? - used) / begun.elapsed().as_secs_f64() * 100.0;
        line = line.figure(name, percent).at_most(name, 1.0);
    }
    line.print();
    Ok(())
}
