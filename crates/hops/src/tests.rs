//! Spans from many threads, and what they cost.

use super::*;

const POD: &str = "0b6f1d8e-2f0b-4a54-9c62-0f6a0c3b7a11";
const SET: &str = "5a1c0b77-9d51-4f39-8a43-6a51d1f0a0ff";

#[test]
fn uids_are_read_and_written() {
    assert_eq!(Uid::of(POD).to_string(), POD);
    assert_eq!(Uid::of(""), Uid::default());
    // The hash of a static pod has no dashes.
    assert_eq!(Uid::of(&POD.replace('-', "")), Uid::of(POD));
    assert_ne!(Uid::of("pod-1"), Uid::of("pod-2"));
}

#[test]
fn the_names_are_the_seeds_twelve_and_stages_are_their_children() {
    for (number, hop) in (1..).zip(Hop::ALL) {
        assert_eq!((hop.number(), Hop::from_number(number)), (number, Some(hop)));
    }
    assert_eq!((Hop::from_number(0), Hop::from_number(13)), (None, None));
    for stage in Stage::ALL {
        assert_eq!(Stage::from_index(stage.index()), Some(*stage));
    }
    assert_eq!(Stage::Pull.hop(), Hop::Kubelet);
}

/// There is one ring: who fills it is alone with it.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn spans_are_found_by_object_owner_and_request_among_many() {
    let _alone = ALONE.lock();
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            std::thread::spawn(move || {
                for number in 0..CAPACITY as u64 {
                    let other = Uid::from_halves(writer + 1, number + 1);
                    start(Hop::Commit, "create").end_of(other, other, number);
                }
            })
        })
        .collect();
    while !writers.iter().all(std::thread::JoinHandle::is_finished) {
        // What is read while others write is whole.
        for span in RING.all() {
            assert_eq!(span.uid, span.owner);
        }
    }
    writers.into_iter().for_each(|writer| writer.join().expect("a writer"));

    let trace = Trace::begin();
    start(Hop::Authentication, "create").within(trace).end_unnamed();
    stage(Stage::Validate, "create").within(trace).end_unnamed();
    start(Hop::Commit, "create").within(trace).end(POD, SET, 7);
    start(Hop::Authentication, "get").within(Trace::begin()).end_unnamed();
    stage(Stage::Bind, "create").end(POD, "", 8);
    let shown: Vec<(u8, Option<&str>, &str, u64)> = about(POD)
        .iter()
        .map(|span| (span.hop.number(), span.stage.map(Stage::name), span.verb, span.revision))
        .collect();
    let expected = [
        (2, None, "create", 0),
        (5, Some("validate"), "create", 0),
        (7, None, "create", 7),
        (10, Some("bind"), "create", 8),
    ];
    assert_eq!(shown, expected);
    assert_eq!(about(SET).len(), 4, "the owner sees what happened to what it owns");
    assert!(RING.all().len() <= CAPACITY);

    // Who waited tells so when it is over.
    stage(Stage::Queue, "schedule").by(label("web")).since(Duration::from_secs(3)).end("0a", "0a", 0);
    let waited = about("0a");
    assert!(waited.len() == 1 && waited[0].took >= Duration::from_secs(3) && waited[0].by == "web", "{waited:?}");
    assert!(about("").is_empty());
}

/// `cargo test --release -p hops -- --nocapture cost` says what a span costs; here it only has to be little.
#[test]
fn a_span_costs_nanoseconds() {
    let _alone = ALONE.lock();
    const OTHER: &str = "11111111-2222-4333-8444-555555555555";
    // The best of many: a machine that does other things besides is no part of the cost.
    let best = |work: &dyn Fn()| {
        let batch = || {
            let begun = Instant::now();
            (0..1_000).for_each(|_| work());
            begun.elapsed() / 1_000
        };
        (0..100).map(|_| batch()).min().expect("a hundred")
    };
    let span = best(&|| start(Hop::Commit, "create").end(OTHER, OTHER, 1));
    let clock = best(&|| {
        std::hint::black_box(Instant::now());
    });
    println!("a span costs {span:?}, of which reading the clock twice is {:?}", clock * 2);
    // With room for a build without optimisation.
    assert!(span < Duration::from_micros(20), "{span:?}");
}
