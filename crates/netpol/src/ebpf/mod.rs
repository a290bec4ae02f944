//! Policies judged by programs of our own in the kernel, on Linux 6.4 and newer.
//!
//! What was decided is in maps that programs look up (`entries`, `program`). A change is made element by element, in an order in which every moment
//! between two of them is right for packets that were and will be allowed, and for those that neither were nor will be.
//!
//! Programs and maps of one writing are a generation. The next one is filled and asked before the one before is let go, so there is no
//! moment without one; while there are two, what both allow passes. Links are pinned in the kernel's file system, below the number of
//! the network namespace, and outlive this process.
//!
//! A few nftables rules remain: they make the kernel remember connections, and bind ports of the bridge to addresses ([`crate::table::companion`]).

pub mod entries;
pub mod program;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use node::bpf::{self, Family, Hook, Kind, Link, Map, Program};

use crate::decision::{Changes, Key};
use entries::{ADDRESS, ALLOWANCE, In, PREFIXED, Place, Steps, VALUE, address, places};
use program::{Kernel, Maps, Strays};

/// Where generations are, by network namespace.
const FILES: &str = "trireme-netpol";
/// The files of rings: one for whoever follows verdicts, one for the agent, which counts them.
const FOLLOWED: &str = "followed";
const COUNTED: &str = "counted";
pub(crate) const RING: u32 = 1 << 16;
/// Where programs are asked: as the nftables rules are, before other filters. Two generations cannot be at one place.
const PRIORITIES: std::ops::RangeInclusive<i32> = -19..=-10;
const PROGRAMS: [(Family, Hook, &str); 4] = [
    (Family::Four, Hook::Forward, "forward4"),
    (Family::Six, Hook::Forward, "forward6"),
    (Family::Four, Hook::Input, "input4"),
    (Family::Six, Hook::Input, "input6"),
];
/// Room in the maps. Only that of identities costs memory while it is empty, 16 bytes each. A map that is full refuses what does not fit:
/// then nothing is told to be in force, and what is missing is not allowed.
const ALLOWANCES: u32 = 1 << 22;
const IDENTITIES: u32 = 1 << 18;
const BLOCKS: u32 = 1 << 20;
const PODS: u32 = 1 << 14;
const SERVED: u32 = 64;
/// So many elements are written before others have their turn.
const TURN: usize = 1_024;

/// One writing of everything.
#[derive(Debug)]
struct Generation {
    maps: Maps,
    /// Held, so that a pin that somebody removes takes nothing with it.
    _links: Vec<Link>,
}

#[derive(Debug)]
pub struct Ebpf {
    kernel: Kernel,
    directory: PathBuf,
    current: Option<Generation>,
}

impl Ebpf {
    /// An error if the kernel cannot: it is asked with programs that nothing is done with.
    pub fn open() -> Result<Self, bpf::Error> {
        let kernel = Kernel::read()?;
        let directory = bpf::place(FILES)?;
        bpf::make_directory(&directory)?;
        for name in [FOLLOWED, COUNTED] {
            let path = directory.join(name);
            if !path.exists() {
                Map::new(name, Kind::Ring, 0, 0, RING)?.pin(&path)?;
            }
        }
        let engine = Self { kernel, directory, current: None };
        let maps = maps(engine.rings()?)?;
        for (family, hook, _) in PROGRAMS {
            program::load(&maps, &engine.kernel, family, hook, Strays::Dropped)?;
        }
        Ok(engine)
    }

    /// Those of whoever follows verdicts, and of the agent.
    fn rings(&self) -> Result<(Map, Map), bpf::Error> {
        let open = |name| Map::open_ring(&self.directory.join(name));
        Ok((open(FOLLOWED)?, open(COUNTED)?))
    }

    /// Makes it exactly this, whatever was there.
    pub async fn replace(&mut self, all: &BTreeMap<Key, u32>, served: &[IpAddr]) -> Result<(), bpf::Error> {
        let maps = maps(self.rings()?)?;
        for ip in served {
            maps.served.insert(&address(*ip), &0_u32.to_ne_bytes())?;
        }
        for (count, (key, value)) in all.iter().enumerate() {
            for place in places(key) {
                insert(&maps, &place, *value)?;
            }
            rest(count).await;
        }
        let before = generations(&self.directory);
        let number = before.iter().map(|(number, _)| number + 1).max().unwrap_or(1);
        let directory = self.directory.join(number.to_string());
        let links = self.attach(&maps, &directory).inspect_err(|_| {
            let _ = std::fs::remove_dir_all(&directory);
        })?;
        self.current = Some(Generation { maps, _links: links });
        for (_, old) in before {
            bpf::remove_directory(&old)?;
        }
        Ok(())
    }

    fn attach(&self, maps: &Maps, directory: &Path) -> Result<Vec<Link>, bpf::Error> {
        bpf::make_directory(directory)?;
        let mut links = Vec::new();
        for (family, hook, name) in PROGRAMS {
            let program = program::load(maps, &self.kernel, family, hook, Strays::Dropped)?;
            let link = Link::attach(&program, family, hook, PRIORITIES)?;
            link.pin(&directory.join(name))?;
            links.push(link);
        }
        Ok(links)
    }

    pub async fn change(&mut self, changes: &Changes) -> Result<(), bpf::Error> {
        let gone = || bpf::Error::Refused {
            operation: "change",
            what: "maps that were never written".to_owned(),
            source: std::io::ErrorKind::NotFound.into(),
        };
        let current = self.current.as_ref().ok_or_else(gone)?;
        write(&current.maps, Steps::of(changes)).await
    }
}

/// The programs with maps of their own, asked by nobody but their caller about single packets: what they answer can be compared with the specification.
#[derive(Debug)]
pub struct Trial {
    maps: Maps,
    four: Program,
    six: Program,
}

impl Trial {
    pub fn new() -> Result<Self, bpf::Error> {
        let kernel = Kernel::read()?;
        let ring = |name| Map::new(name, Kind::Ring, 0, 0, RING);
        let maps = maps((ring(FOLLOWED)?, ring(COUNTED)?))?;
        let load = |family| program::load(&maps, &kernel, family, Hook::Forward, Strays::Judged);
        let (four, six) = (load(Family::Four)?, load(Family::Six)?);
        Ok(Self { maps, four, six })
    }

    pub async fn change(&self, changes: &Changes) -> Result<(), bpf::Error> {
        write(&self.maps, Steps::of(changes)).await
    }

    /// Whether a packet that opens a connection is passed on.
    pub fn passes(&self, packet: &[u8]) -> Result<bool, bpf::Error> {
        let program = if packet.first().is_some_and(|first| first >> 4 == 6) { &self.six } else { &self.four };
        Ok(program.judge(packet)? == program::ACCEPTED)
    }
}

/// Rings are given, because they outlive generations.
fn maps((followed, counted): (Map, Map)) -> Result<Maps, bpf::Error> {
    Ok(Maps {
        allowed: Map::new("allowed", Kind::Longest, ALLOWANCE, VALUE, ALLOWANCES)?,
        identities: Map::new("identities", Kind::Hash, ADDRESS, VALUE, IDENTITIES)?,
        exact: Map::new("exact", Kind::Hash, ADDRESS, VALUE, IDENTITIES)?,
        blocks: Map::new("blocks", Kind::Longest, PREFIXED, VALUE, BLOCKS)?,
        rulesets: Map::new("rulesets", Kind::Hash, PREFIXED, VALUE, PODS)?,
        served: Map::new("served", Kind::Hash, ADDRESS, VALUE, SERVED)?,
        told: Map::new("told", Kind::PerProcessor, 4, 16, 1)?,
        followed,
        counted,
    })
}

async fn write(maps: &Maps, steps: Steps) -> Result<(), bpf::Error> {
    for (count, (place, value)) in steps.insert.iter().enumerate() {
        insert(maps, place, *value)?;
        rest(count).await;
    }
    for (count, (map, key)) in steps.remove.iter().enumerate() {
        choose(maps, *map).remove(key)?;
        rest(count).await;
    }
    Ok(())
}

/// Removes everything that the engine ever made in this network namespace.
pub fn cleanup() -> Result<(), bpf::Error> {
    bpf::remove_directory(&bpf::place(FILES)?)
}

/// The ring that one may read verdicts from; nothing where this engine does not judge.
pub(crate) fn ring(counted: bool) -> Result<Option<bpf::Ring>, bpf::Error> {
    let directory = bpf::place(FILES)?;
    if generations(&directory).is_empty() {
        return Ok(None);
    }
    let map = Map::open_ring(&directory.join(if counted { COUNTED } else { FOLLOWED }))?;
    bpf::Ring::open(&map, RING).map(Some)
}

fn generations(directory: &Path) -> Vec<(u64, PathBuf)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path()))).collect()
}

fn choose(maps: &Maps, map: In) -> &Map {
    match map {
        In::Allowed => &maps.allowed,
        In::Identities => &maps.identities,
        In::Exact => &maps.exact,
        In::Blocks => &maps.blocks,
        In::Rulesets => &maps.rulesets,
    }
}

fn insert(maps: &Maps, (map, key): &Place, value: u32) -> Result<(), bpf::Error> {
    choose(maps, *map).insert(key, &value.to_ne_bytes())
}

/// A system call for each element adds up.
async fn rest(count: usize) {
    if count % TURN == TURN - 1 {
        tokio::task::yield_now().await;
    }
}
