//! A real browser, for tests of the page: Debian's Chromium without a window, told what to do by its DevTools protocol over a pipe.
//!
//! It looks at one page. Whatever that page complains about, an exception that nobody caught or a policy that was violated, is kept, so
//! that a test can say that there was none. The browser ends when it is dropped.

use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;

use crate::eventually;

/// It sends nothing to anybody but the page that it is told to open.
const OPTIONS: &str = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --ignore-certificate-errors --no-first-run \
     --disable-background-networking --disable-component-update --disable-default-apps --disable-sync --disable-extensions \
     --metrics-recording-only --no-proxy-server --remote-debugging-pipe";

/// How often a page is opened while the machine's networks change.
const ATTEMPTS: usize = 10;

type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<Value>>>>;

pub struct Browser {
    _process: Child,
    orders: tokio::sync::Mutex<ChildStdin>,
    waiting: Waiting,
    complaints: Arc<Mutex<Vec<String>>>,
    next: AtomicU64,
    session: String,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts one with an empty page.
    pub async fn start() -> Self {
        let profile = tempfile::tempdir().expect("a directory");
        // Chromium reads orders from its third descriptor and answers at the fourth; the shell makes them of the usual two.
        let line =
            format!("exec chromium {OPTIONS} --user-data-dir=\"$0\" about:blank 3<&0 4>&1 </dev/null >/dev/null");
        let mut process = Command::new("sh")
            .args(["-c", &line])
            .arg(profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("a shell");
        let orders = tokio::sync::Mutex::new(process.stdin.take().expect("a pipe"));
        let answers = process.stdout.take().expect("a pipe");
        let (waiting, complaints) = (Waiting::default(), Arc::default());
        tokio::spawn(listen(answers, Arc::clone(&waiting), Arc::clone(&complaints)));
        let mut browser = Self {
            _process: process,
            orders,
            waiting,
            complaints,
            next: AtomicU64::new(1),
            session: String::new(),
            _profile: profile,
        };
        let target = browser.order("Target.createTarget", json!({"url": "about:blank"})).await;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.order("Target.attachToTarget", attach).await;
        browser.session =
            attached["sessionId"].as_str().expect("a session: is Debian's package chromium there?").to_owned();
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.order(domain, json!({})).await;
        }
        browser
    }

    /// One order of the protocol about the page, and its answer.
    async fn order(&self, method: &str, params: Value) -> Value {
        self.order_within(&self.session, method, params).await
    }

    /// One order about the page of a session, or about the whole browser.
    async fn order_within(&self, session: &str, method: &str, params: Value) -> Value {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answered, answer) = oneshot::channel();
        self.waiting.lock().insert(id, answered);
        let mut order = json!({"id": id, "method": method, "params": params});
        if !session.is_empty() {
            order["sessionId"] = json!(session);
        }
        let mut bytes = order.to_string().into_bytes();
        bytes.push(0);
        let mut orders = self.orders.lock().await;
        orders.write_all(&bytes).await.expect("the browser runs: is Debian's package chromium there?");
        orders.flush().await.expect("the browser runs");
        drop(orders);
        eventually(method, answer).await.expect("the browser runs: is Debian's package chromium there?")
    }

    /// The size of the page and whether its user likes it `dark` or `light`.
    pub async fn look(&self, width: u32, height: u32, scheme: &str) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.order("Emulation.setDeviceMetricsOverride", size).await;
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.order("Emulation.setEmulatedMedia", media).await;
    }

    /// Opens an address, anew even if only what is behind its `#` differs.
    pub async fn open(&self, address: &str) {
        self.order("Page.navigate", json!({"url": "about:blank"})).await;
        for _ in 0..ATTEMPTS {
            let answer = self.order("Page.navigate", json!({"url": address})).await;
            match answer.get("errorText").and_then(Value::as_str) {
                None => return,
                // Other tests make networks on this machine meanwhile. Whoever sits before a browser sees it load the page again by itself.
                Some("net::ERR_NETWORK_CHANGED") => {}
                Some(_) => panic!("{address}: {answer}"),
            }
        }
        panic!("{address}: the machine's networks changed {ATTEMPTS} times while it was opened");
    }

    /// Shows another view of the page that is open.
    pub async fn go(&self, hash: &str) {
        self.evaluate(&format!("location.hash = {}", json!(hash))).await;
    }

    /// The value of an expression in the page; promises are awaited.
    pub async fn evaluate(&self, expression: &str) -> Value {
        let params =
            json!({"expression": expression, "awaitPromise": true, "returnByValue": true, "userGesture": true});
        let answer = self.order("Runtime.evaluate", params).await;
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {:#}", answer["exceptionDetails"]);
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true, looking once a frame; panics with the page's text if that takes too long.
    pub async fn until(&self, what: &str, expression: &str) -> Value {
        let script = format!(
            "new Promise((met) => {{ const end = Date.now() + 110000; const look = () => {{ let found = false; try {{ found = ({expression}); }} catch {{}} \
             if (found) met(found); else if (Date.now() > end) met(null); else setTimeout(look, 30); }}; look(); }})"
        );
        let met = self.evaluate(&script).await;
        if met.is_null() {
            panic!("did not happen: {what}\n{}\n{:?}", self.text().await, self.complaints());
        }
        met
    }

    /// Waits until the page says something.
    pub async fn says(&self, text: &str) {
        self.until(text, &format!("document.body.innerText.includes({})", json!(text))).await;
    }

    /// What the page says.
    pub async fn text(&self) -> String {
        self.evaluate("document.body.innerText").await.as_str().unwrap_or_default().to_owned()
    }

    /// Clicks at what a selector finds, once it is there.
    pub async fn click(&self, selector: &str) {
        let found = format!("document.querySelector({})", json!(selector));
        self.until(selector, &format!("{found} && !{found}.disabled")).await;
        self.evaluate(&format!("{found}.click()")).await;
    }

    /// Puts a text into a field, as somebody who types it.
    pub async fn fill(&self, selector: &str, text: &str) {
        let found = format!("document.querySelector({})", json!(selector));
        self.until(selector, &format!("!!{found}")).await;
        self.evaluate(&format!("{found}.focus(), {found}.select?.()")).await;
        self.order("Input.insertText", json!({"text": text})).await;
    }

    /// Presses and releases a key: a letter, or a name such as `Enter`.
    pub async fn press(&self, key: &str) {
        self.press_with(key, 0).await;
    }

    /// With modifiers: 1 is Alt, 2 is Ctrl, 8 is Shift.
    pub async fn press_with(&self, key: &str, modifiers: u32) {
        let text = match key {
            "Enter" => "\r",
            key if key.chars().count() == 1 && modifiers & 2 == 0 => key,
            _ => "",
        };
        let code = match key {
            "Enter" => 13,
            "Escape" => 27,
            _ => 0,
        };
        let down =
            json!({"type": "keyDown", "key": key, "text": text, "modifiers": modifiers, "windowsVirtualKeyCode": code});
        self.order("Input.dispatchKeyEvent", down).await;
        let up = json!({"type": "keyUp", "key": key, "modifiers": modifiers, "windowsVirtualKeyCode": code});
        self.order("Input.dispatchKeyEvent", up).await;
    }

    /// Presses the keys of a text one after the other.
    pub async fn write(&self, text: &str) {
        for letter in text.chars() {
            self.press(&letter.to_string()).await;
        }
    }

    /// Runs a script in every page that is opened from now on, before the page's own.
    pub async fn before_pages(&self, script: &str) {
        self.order("Page.addScriptToEvaluateOnNewDocument", json!({"source": script})).await;
    }

    /// Seconds that the page's main thread has worked since it was opened.
    pub async fn worked(&self) -> f64 {
        self.order("Performance.enable", json!({"timeDomain": "threadTicks"})).await;
        let answer = self.order("Performance.getMetrics", json!({})).await;
        let metrics = answer["metrics"].as_array().expect("metrics");
        let worked = metrics.iter().find(|metric| metric["name"] == "TaskDuration").expect("Chromium has the figure");
        worked["value"].as_f64().expect("seconds")
    }

    /// The process that draws the page. Empty pages have one of their own, which has hardly worked.
    pub async fn tab_process(&self) -> u32 {
        let answer = self.order_within("", "SystemInfo.getProcessInfo", json!({})).await;
        let processes = answer["processInfo"].as_array().expect("processes").iter();
        let tabs = processes.filter(|process| process["type"] == "renderer");
        let worked = |process: &&Value| process["cpuTime"].as_f64().unwrap_or_default();
        let tab = tabs.max_by(|one, other| worked(one).total_cmp(&worked(other))).expect("a page has a process");
        tab["id"].as_u64().and_then(|id| u32::try_from(id).ok()).expect("a process id")
    }

    /// A picture of the page.
    pub async fn picture(&self, file: &Path) {
        let answer = self.order("Page.captureScreenshot", json!({"format": "png", "optimizeForSpeed": false})).await;
        let data = STANDARD.decode(answer["data"].as_str().expect("a picture")).expect("a picture");
        std::fs::write(file, data).expect("a file");
    }

    /// What the page complained about: exceptions that nobody caught, errors of the security policy.
    pub fn complaints(&self) -> Vec<String> {
        self.complaints.lock().clone()
    }
}

/// Gives answers to those who wait for them, until the browser ends.
async fn listen(answers: ChildStdout, waiting: Waiting, complaints: Arc<Mutex<Vec<String>>>) {
    let mut answers = BufReader::new(answers);
    loop {
        let mut message = Vec::new();
        match answers.read_until(0, &mut message).await {
            Ok(read) if read > 0 => {}
            _ => break,
        }
        message.pop();
        let Ok(mut message) = serde_json::from_slice::<Value>(&message) else { continue };
        if let Some(answered) = message["id"].as_u64().and_then(|id| waiting.lock().remove(&id)) {
            let refused = message.get("error").map(|error| json!({"errorText": error.to_string()}));
            let answer = refused.unwrap_or_else(|| message["result"].take());
            let _ = answered.send(answer);
            continue;
        }
        complaints.lock().extend(complaint(&message));
    }
    // Whoever still waits is told.
    waiting.lock().clear();
}

fn complaint(message: &Value) -> Option<String> {
    match message["method"].as_str()? {
        "Runtime.exceptionThrown" => Some(message["params"]["exceptionDetails"].to_string()),
        "Log.entryAdded" => {
            let entry = &message["params"]["entry"];
            // What the server refuses the page shows itself.
            let of_network = entry["source"] == "network";
            (entry["level"] == "error" && !of_network).then(|| entry.to_string())
        }
        _ => None,
    }
}
