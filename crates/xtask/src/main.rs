//! Writes the checked-in data of crate `facts` from upstream's published facts.
//!
//! ```text
//! cargo xtask generate [FACTS] [--go-source DIR]
//! ```
//!
//! `FACTS` is the folder with `discovery`, `openapi-v3`, `proto-tags.json` and `rbac` (by default the folder
//! `shared/upstream` beside the workspace). `--go-source` names a source tree of Kubernetes, from which the
//! facts that are published nowhere else are renewed first: which fields Go holds by pointer and which it
//! writes even when they are zero (`presence.txt`), and which values fields may have (`enums.txt`).

use std::error::Error;
use std::path::{Path, PathBuf};

use xtask::generator;

fn main() -> Result<(), Box<dyn Error>> {
    let here = generator::here();
    let mut facts = generator::default_folder();
    let mut go_source: Option<PathBuf> = None;
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() != Some("generate") {
        return Err("cargo xtask generate [FACTS] [--go-source DIR]".into());
    }
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--go-source" => go_source = Some(args.next().ok_or("--go-source needs a directory")?.into()),
            folder => facts = folder.into(),
        }
    }
    if let Some(source) = go_source {
        let renew = |name: &str, renew: fn(&Path, &Path, &str) -> Result<String, generator::Failure>| {
            let path = here.join(name);
            let before = std::fs::read_to_string(&path).unwrap_or_default();
            std::fs::write(&path, renew(&facts, &source, &before)?)?;
            Ok::<(), Box<dyn Error>>(())
        };
        renew("presence.txt", generator::presence)?;
        renew("enums.txt", generator::enums)?;
    }
    for (name, text) in generator::files(&facts)? {
        std::fs::write(here.join(name), text)?;
        println!("wrote {name}");
    }
    Ok(())
}
