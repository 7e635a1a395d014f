//! `trainyard queue`: lists jobs that wait, what is ahead of each, and what would let it run.

use crate::exit;
use crate::output;
use client::{ClientError, Cluster};
use grammar::{Format, ListArgs};
use jiff::Timestamp;
use view::amounts::{Amounts, GPU, all_shown, shown};
use view::queue::Queue;

/// Prints the queue of the namespace.
pub(crate) async fn queue(cluster: &Cluster, args: &ListArgs) -> Result<u8, ClientError> {
    let queue = Queue::of(&facts::queue::read(cluster).await?, Timestamp::now());
    match args.output.output {
        Format::Json | Format::Yaml => output::print(&queue.json(), args.output.output),
        Format::Name => queue.waiting.iter().for_each(|waiting| println!("{}", waiting.name)),
        Format::Table | Format::Wide if queue.waiting.is_empty() => {
            eprintln!("nothing waits in namespace {}{}", cluster.namespace, free(&queue));
        }
        Format::Table | Format::Wide => {
            let rows = queue.waiting.iter().map(|waiting| {
                let ahead = match queue.ahead(waiting) {
                    [] => "-".to_owned(),
                    [first, more @ ..] => view::queue::named(first, more.len()),
                };
                vec![
                    waiting.position.map_or("-".to_owned(), |position| position.to_string()),
                    waiting.name.clone(),
                    waiting.pods.to_string(),
                    told(&waiting.needs),
                    ahead,
                ]
            });
            output::table(&["PLACE", "NAME", "PODS", "NEEDS", "AHEAD"], rows.collect());
            for waiting in &queue.waiting {
                println!("\n{}: {}", waiting.name, waiting.why);
                waiting.would.iter().for_each(|would| println!("  would let it run: {would}"));
            }
            eprintln!("{}", free(&queue).trim_start_matches("; "));
        }
    }
    Ok(exit::OK)
}

/// What it needs; a dash for nothing.
fn told(amounts: &Amounts) -> String {
    Some(all_shown(amounts)).filter(|told| !told.is_empty()).unwrap_or_else(|| "-".to_owned())
}

/// What the nodes have left; nothing where they may not be listed.
fn free(queue: &Queue) -> String {
    let of = |name: &str| {
        let (free, all) = (queue.free.get(name)?, queue.capacity.get(name)?);
        Some(format!("{} (of {all})", shown(name, *free)))
    };
    let told: Vec<String> = ["cpu", GPU].into_iter().filter_map(of).collect();
    if told.is_empty() { String::new() } else { format!("; free: {}", told.join(", ")) }
}
