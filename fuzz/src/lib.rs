//! Inputs made at random, for as long as there is time, on any toolchain.
//!
//! A target takes bytes and must neither panic nor take long. Inputs are made from others by small changes; those with which a target
//! got further than before are kept to be changed again. What fails is written to a file, which the target takes as an argument.
//! `TRIREME_SEED` repeats a run, `TRIREME_FUZZ_SECONDS` says how long one takes.

#[path = "../../crates/apiserver/tests/it/body.rs"]
pub mod body;
mod mutate;
#[path = "../../crates/apiserver/tests/it/typed.rs"]
pub mod typed;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use machinery::Value;
use machinery::codec::{Limits, yaml};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};

/// How long a run takes, unless somebody says otherwise.
const SECONDS: u64 = 60;
/// The longest that one input may take: a request of this size must not hold a thread.
const SLOW: Duration = Duration::from_secs(5);
/// How many inputs are kept, and how long each may be.
const MOST: usize = 4096;
const LONGEST: usize = 64 * 1024;

/// One of every kind, as a user would write it.
pub fn samples() -> Vec<Value> {
    let documents = include_str!("../../crates/apiserver/tests/it/kinds.yaml").split("\n---\n");
    documents.filter_map(|text| yaml::decode(text.as_bytes(), Limits::default()).ok()).map(|read| read.value).collect()
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs a target on the files that are named, or else on inputs made from these, until the time is up. `target` says how far it got.
pub fn run(name: &str, mut inputs: Vec<Vec<u8>>, target: impl Fn(&[u8]) -> usize) -> ExitCode {
    let files: Vec<String> = std::env::args().skip(1).collect();
    if !files.is_empty() {
        for file in files {
            target(&std::fs::read(&file).expect("an input"));
        }
        return ExitCode::SUCCESS;
    }
    let seed = number("TRIREME_SEED").unwrap_or_else(rand::random);
    let seconds = Duration::from_secs(number("TRIREME_FUZZ_SECONDS").unwrap_or(SECONDS));
    println!("{name}: seed {seed}, {} seconds, from {} inputs", seconds.as_secs(), inputs.len());
    let mut random = StdRng::seed_from_u64(seed);
    let (begun, mut tries, mut furthest) = (Instant::now(), 0_u64, 0);
    while begun.elapsed() < seconds {
        let other = inputs.choose(&mut random).cloned().unwrap_or_default();
        let mut input = inputs.choose(&mut random).cloned().unwrap_or_default();
        mutate::mutate(&mut random, &mut input, &other);
        input.truncate(LONGEST);
        let started = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| target(&input)));
        tries += 1;
        match outcome {
            Err(_) => return failed(name, seed, &input, "panicked"),
            Ok(_) if started.elapsed() > SLOW => return failed(name, seed, &input, "took too long"),
            // What gets as far as anything did leads further, now and then.
            Ok(depth) if depth >= furthest && (depth > furthest || random.random_bool(0.05)) => {
                furthest = depth;
                match inputs.len() < MOST {
                    true => inputs.push(input),
                    false => inputs[random.random_range(0..MOST)] = input,
                }
            }
            Ok(_) => {}
        }
    }
    println!("{name}: {tries} inputs, none failed");
    ExitCode::SUCCESS
}

fn failed(name: &str, seed: u64, input: &[u8], how: &str) -> ExitCode {
    let file = Path::new("target").join(format!("fuzz-{name}-{seed}"));
    match std::fs::write(&file, input) {
        Ok(()) => println!("{name}: seed {seed} {how}: cargo run -p fuzz --bin {name} -- {}", file.display()),
        Err(error) => println!("{name}: seed {seed} {how}, with an input that cannot be written: {error}"),
    }
    ExitCode::FAILURE
}
