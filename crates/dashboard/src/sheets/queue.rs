//! What waits, for what, behind whom, and what would let it run.

use super::{Reader, address};
use crate::problem::Problem;
use crate::row::Kind;
use crate::sheet::{Cell, Part, Sheet, main_table, table};
use std::collections::BTreeSet;
use view::amounts::{all_shown, shown};
use view::queue::{Queue, Waiting, named};

/// Namespaces whose queues a page shows, unless its address names others.
const NAMESPACES_SHOWN: usize = 10;

fn row(reader: &Reader<'_>, queue: &Queue, waiting: &Waiting) -> Vec<Cell> {
    let ahead = match queue.ahead(waiting) {
        [] => String::new(),
        [first, more @ ..] => named(first, more.len()),
    };
    let held = match waiting.by {
        "scheduler" => "the scheduler",
        "kueue" => "Kueue",
        "retry" => "its next attempt",
        _ => "its controller",
    };
    vec![
        waiting.position.map_or(Cell::text(""), |place| {
            Cell::number(f64::from(i32::try_from(place).unwrap_or(i32::MAX)), place.to_string())
        }),
        Cell::link(reader.job(&waiting.namespace, &waiting.name), &waiting.name),
        Cell::text(&waiting.namespace),
        Cell::text(all_shown(&waiting.needs)),
        Cell::text(ahead),
        Cell::text(held),
        Cell::text(&waiting.why),
        Cell::text(waiting.would.join("; ")),
    ]
}

/// What the nodes have left: `3 CPUs (of 8)`.
fn free(queue: &Queue) -> Vec<Vec<Cell>> {
    let all =
        queue.capacity.iter().filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory") || name.ends_with("/gpu"));
    let row = |(name, all): (&String, &api::quantity::Quantity)| {
        let left = queue.free.get(name).copied().unwrap_or(api::quantity::Quantity::ZERO);
        #[expect(clippy::cast_precision_loss, reason = "amounts of resources")]
        let value = |amount: api::quantity::Quantity| amount.milli_value() as f64;
        vec![
            Cell::text(name),
            Cell::part(value(left), value(*all), format!("{} free of {}", shown(name, left), shown(name, *all))),
        ]
    };
    all.map(row).collect()
}

pub(super) async fn list(reader: &Reader<'_>) -> Result<Sheet, Problem> {
    let mut sheet = Sheet { title: "Queue".to_owned(), ..Sheet::default() };
    let cluster = reader.cluster();
    let own = vec![cluster.namespace.clone()];
    let chosen = if reader.view.namespaces.is_empty() { &own } else { &reader.view.namespaces };
    let kinds = [Kind::TrainJob, Kind::MpiJob, Kind::ManagedJob];
    let visible = reader.session.rights.visible(cluster, &kinds, chosen).await?;
    let index = &reader.app.index;
    index.ready(&kinds).await;
    let mut rows = index.rows(reader.now, |kind, namespace| kinds.contains(&kind) && visible.shows(kind, namespace));
    rows.retain(|row| matches!(row.group.as_str(), "pending" | "suspended" | "created" | "restarting" | "recovering"));
    let namespaces: Vec<String> = match reader.view.namespaces.as_slice() {
        [] => {
            let waiting = rows.iter().filter(|row| row.kind != Kind::ManagedJob).map(|row| row.namespace.clone());
            let all: BTreeSet<String> = waiting.chain(own).collect();
            if all.len() > NAMESPACES_SHOWN {
                let count = all.len();
                sheet.hidden.push(format!(
                    "jobs wait in {count} namespaces; this page shows {NAMESPACES_SHOWN} of them: choose others in its address, as in ?namespace=a"
                ));
            }
            all.into_iter().take(NAMESPACES_SHOWN).collect()
        }
        chosen => chosen.to_vec(),
    };
    let queues = facts::queue::read_each(cluster, &namespaces).await?;
    let waiting = queues.iter().flat_map(|(_, queue)| queue.waiting.iter().map(|one| row(reader, queue, one)));
    let headings = ["Place", "Job", "Namespace", "Needs", "Behind", "Waits for", "Why", "What would let it run"];
    sheet.parts.push(main_table(&headings, waiting.collect(), "No job waits.", ""));
    let managed = rows.iter().filter(|row| row.kind == Kind::ManagedJob).map(|row| {
        vec![
            Cell::link(address(&["jobs", row.kind.as_str(), &row.namespace, &row.name]), &row.title),
            Cell::text(&row.namespace),
            Cell::state(&row.state, &row.group),
            Cell::text(&row.owner),
            Cell::text(&row.reason),
            Cell::Age { at: Some(row.created) },
        ]
    });
    let headings = ["Job", "Namespace", "State", "User", "Why", "Submitted"];
    sheet.parts.push(table("Managed jobs", &headings, managed.collect(), "No managed job waits."));
    if let Some((_, queue)) = queues.first() {
        let part = table(
            "Room on the nodes",
            &["Resource", "Free"],
            free(queue),
            "You have no right to list nodes and all pods, so what is free is not known.",
        );
        sheet.parts.push(part);
    }
    sheet.parts.push(Part::Commands {
        title: "Commands".to_owned(),
        commands: vec![crate::sheet::Command {
            title: "The same in a terminal",
            command: format!(
                "trainyard queue -n {}{}",
                namespaces.first().map_or("default", String::as_str),
                cluster.flags
            ),
        }],
    });
    Ok(sheet)
}
