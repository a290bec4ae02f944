//! The two engines that put what was decided into the kernel, and which of them does.

use std::net::IpAddr;

use node::nft;

use crate::compile::Compiler;
use crate::decision::Changes;
use crate::ebpf::{self, Ebpf};
use crate::elements::{self, Transaction};
use crate::port::{self, Port};
use crate::{Error, table};

/// An engine by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Nftables,
    Ebpf,
}

impl Kind {
    pub const BOTH: [Self; 2] = [Self::Nftables, Self::Ebpf];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nftables => "nftables",
            Self::Ebpf => "ebpf",
        }
    }
}

/// The engine of this network namespace.
#[derive(Debug)]
pub enum Engine {
    Nftables,
    Ebpf(Box<Ebpf>),
}

impl Engine {
    /// An error if the kernel has no such programs.
    pub fn open(wanted: Kind) -> Result<Self, Error> {
        match wanted {
            Kind::Nftables => Ok(Self::Nftables),
            Kind::Ebpf => Ok(Self::Ebpf(Box::new(Ebpf::open()?))),
        }
    }

    pub fn kind(&self) -> Kind {
        match self {
            Self::Nftables => Kind::Nftables,
            Self::Ebpf(_) => Kind::Ebpf,
        }
    }

    /// Makes the kernel keep exactly what was decided, whatever was there. What the other engine left goes when this one judges.
    pub async fn replace(&mut self, compiler: &Compiler, served: &[IpAddr], ports: &[Port]) -> Result<(), Error> {
        let quiet = port::quiet(compiler, ports.iter());
        match self {
            Self::Nftables => {
                let script = table::replace(served, &elements::all(compiler), ports, &quiet);
                if nft::apply(&script).await.is_err() {
                    // Some kernels keep no logs of packets; they judge them all the same.
                    nft::apply(&table::without_logs(&script)).await?;
                }
                Ok(ebpf::cleanup()?)
            }
            Self::Ebpf(engine) => {
                // Without connections that the kernel remembers nothing would pass; with the rules of the other engine only less.
                nft::apply(&table::tracking()).await?;
                engine.replace(&compiler.all(), served).await?;
                Ok(nft::apply(&table::companion(ports, &quiet)).await?)
            }
        }
    }

    /// Makes a change that the compiler has just decided.
    pub async fn change(&mut self, compiler: &Compiler, changes: &Changes, ports: nft::Elements) -> Result<(), Error> {
        match self {
            Self::Nftables => {
                let transaction = Transaction::of(compiler, changes);
                for part in [&transaction, &table::last(&transaction)] {
                    match table::messages(part) {
                        Some(messages) => nft::change(messages).await?,
                        None => nft::apply(&table::script(part)).await?,
                    }
                }
            }
            Self::Ebpf(engine) => engine.change(changes).await?,
        }
        Ok(nft::change(ports).await?)
    }
}
