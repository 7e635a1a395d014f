//! Performance as ratios: ours against a real peer, both started here, both durable, under the same load.
//!
//!     cargo run --release -p benches -- [--only NAME,…] [--json]
//!
//! Peers: `cargo xtask kubernetes` (etcd, kube-apiserver, upstream's JobSet and Trainer) where there is Go to build them, else
//! Debian's `etcd` for the store alone; a peer that is missing is said and its ratio left out. Never run as a test: what
//! it prints is to be read.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

mod allocations;
mod api;
mod configmaps;
mod contender;
mod downloads;
mod etcd;
mod load;
mod managed;
mod mpijobs;
mod mpirun;
mod operator;
mod overhead;
mod peer;
mod placement;
mod plan;
mod queue;
mod ray;
mod reports;
mod serving;
mod sky;
mod sshd;
mod startup;
mod store;
mod sweep;
mod trainjobs;
mod waiting;
mod watchers;

use anyhow::Result;
use clap::Parser;
use serde_json::{Value, json};
use std::path::PathBuf;

#[derive(Parser)]
struct Flags {
    /// Only these, with commas: plan, queue, placement, store, api, configmaps, watchers, trainjobs, waiting, sweep, reports, operator, mpijobs, mpirun, startup, downloads, sky, managed, serving, overhead
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// The binary to measure
    #[arg(long, default_value = "target/release/trainyard")]
    trainyard: PathBuf,
    /// Measure ours alone
    #[arg(long)]
    no_peer: bool,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// A tenth of the work: to see that it runs
    #[arg(long)]
    quick: bool,
}

/// One figure of ours beside the peer's.
pub struct Figure {
    pub name: &'static str,
    pub unit: &'static str,
    pub ours: f64,
    pub peer: Option<f64>,
    /// Who the peer is.
    pub against: &'static str,
    /// Whether more is better.
    pub more_is_better: bool,
}

impl Figure {
    /// How many times better ours is.
    fn ratio(&self) -> Option<f64> {
        let peer = self.peer?;
        Some(if self.more_is_better { self.ours / peer } else { peer / self.ours })
    }
}

/// What every benchmark gets.
pub struct Setting {
    pub trainyard: PathBuf,
    /// Whether a real control plane can be had to compare with.
    pub kubernetes: bool,
    /// Whether others may be started to compare with.
    pub peers: bool,
    /// Divides the amount of work.
    pub shrink: usize,
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    if let (Some(serving::ORIGIN), Some(address)) = (words.next().as_deref(), words.next()) {
        return serving::origin(&address).await;
    }
    let flags = Flags::parse();
    let kubernetes = !flags.no_peer && peer::has_go();
    if !kubernetes && !flags.no_peer {
        eprintln!("no Go: figures against Kubernetes are left out");
    }
    let shrink = if flags.quick { 10 } else { 1 };
    let setting = Setting { trainyard: flags.trainyard.clone(), kubernetes, peers: !flags.no_peer, shrink };
    let wanted = |name: &str| flags.only.is_empty() || flags.only.iter().any(|only| only == name);
    let mut figures = Vec::new();
    if wanted("plan") {
        figures.extend(plan::measure(&setting)?);
    }
    if wanted("queue") {
        figures.extend(queue::measure(&setting)?);
    }
    if wanted("placement") {
        figures.extend(placement::measure(&setting)?);
    }
    if wanted("store") {
        figures.extend(store::measure(&setting).await?);
    }
    if wanted("startup") {
        figures.extend(startup::measure(&setting).await?);
    }
    if wanted("api") {
        figures.extend(api::measure(&setting).await?);
    }
    if wanted("configmaps") || wanted("watchers") {
        // one server for both, as it takes a while to fill it
        let stored = configmaps::fill(&setting).await?;
        if wanted("configmaps") {
            figures.extend(stored.figures().await?);
        }
        if wanted("watchers") {
            figures.extend(watchers::measure(&setting, &stored).await?);
        }
    }
    if wanted("trainjobs") {
        figures.extend(trainjobs::measure(&setting).await?);
    }
    if wanted("waiting") {
        figures.extend(waiting::measure(&setting).await?);
    }
    if wanted("sweep") {
        figures.extend(sweep::measure(&setting).await?);
    }
    if wanted("reports") {
        figures.extend(reports::measure(&setting).await?);
    }
    if wanted("operator") {
        figures.extend(operator::measure(&setting).await?);
    }
    if wanted("mpijobs") {
        figures.extend(mpijobs::measure(&setting).await?);
    }
    if wanted("mpirun") {
        figures.extend(mpirun::measure(&setting)?);
    }
    if wanted("downloads") {
        figures.extend(downloads::measure(&setting).await?);
    }
    if wanted("sky") {
        figures.extend(sky::measure(&setting).await?);
    }
    if wanted("managed") {
        figures.extend(managed::measure(&setting).await?);
    }
    if wanted("serving") {
        figures.extend(serving::measure(&setting).await?);
    }
    if wanted("overhead") {
        figures.extend(overhead::measure(&setting)?);
    }
    report(&figures, flags.json);
    Ok(())
}

fn report(figures: &[Figure], as_json: bool) {
    if as_json {
        let rows: Vec<Value> = figures
            .iter()
            .map(|f| json!({"name": f.name, "unit": f.unit, "ours": f.ours, "peer": f.peer, "against": f.against, "ratio": f.ratio()}))
            .collect();
        println!("{}", Value::from(rows));
        return;
    }
    println!("{:<43} {:>12} {:>12} {:>8}  unit, peer", "figure", "ours", "peer", "ratio");
    figures.iter().for_each(|figure| println!("{}", row(figure)));
}

/// Tells figures as they come, of a benchmark that takes long.
pub fn show(figures: &[Figure]) {
    figures.iter().for_each(|figure| eprintln!("{}", row(figure)));
}

fn row(figure: &Figure) -> String {
    let number = |number: f64| if number < 10.0 { format!("{number:.2}") } else { format!("{number:.1}") };
    let peer = figure.peer.map_or("-".to_owned(), number);
    let ratio = figure.ratio().map_or("-".to_owned(), |ratio| format!("{ratio:.2}x"));
    let ours = number(figure.ours);
    format!("{:<43} {ours:>12} {peer:>12} {ratio:>8}  {}, {}", figure.name, figure.unit, figure.against)
}
