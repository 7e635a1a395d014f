//! Nodes: what they have, and who holds it.

use super::{NO_NAMESPACE, Reader, address, gib, object, timeline, yaml};
use crate::problem::Problem;
use crate::sheet::{Cell, Command, Part, Sheet, facts, main_table, table};
use api::object as read;
use api::quantity::Quantity;
use client::Kind;
use view::amounts::{Amounts, held};
use view::nodes::{NodeHolder, NodeUse, gpus, in_use};

/// Jobs with GPUs that a row names.
const HOLDERS_SHOWN: usize = 3;

fn group(node: &NodeUse) -> &'static str {
    match (node.state, node.why.is_empty()) {
        ("Ready", true) => "complete",
        ("Ready", false) => "suspended",
        _ => "failed",
    }
}

fn cpus(part: Quantity, whole: Quantity) -> Cell {
    #[expect(clippy::cast_precision_loss, reason = "thousandths of processors")]
    let value = |amount: Quantity| amount.milli_value() as f64 / 1000.0;
    let (part, whole) = (value(part), value(whole));
    Cell::part(part, whole, format!("{part:.1} of {whole:.0}"))
}

#[expect(clippy::cast_precision_loss, reason = "amounts of resources")]
fn count(part: Quantity, whole: Quantity) -> Cell {
    match whole.value() {
        0 => Cell::number(-1.0, ""),
        _ => Cell::part(part.value() as f64, whole.value() as f64, format!("{} of {}", part.value(), whole.value())),
    }
}

#[expect(clippy::cast_precision_loss, reason = "bytes")]
fn memory(part: Quantity, whole: Quantity) -> Cell {
    let (part, whole) = (part.value(), whole.value());
    Cell::part(part as f64, whole as f64, format!("{} of {}", gib(part), gib(whole)))
}

/// Who has its GPUs: `train 2, mpijob/sim 1`.
fn with_gpus(node: &NodeUse) -> String {
    let having: Vec<&NodeHolder> = node.holders.iter().filter(|holder| !gpus(&holder.held).is_zero()).collect();
    let told = having.iter().take(HOLDERS_SHOWN).map(|holder| format!("{} {}", holder.name, gpus(&holder.held)));
    let mut told = told.collect::<Vec<_>>().join(", ");
    if having.len() > HOLDERS_SHOWN {
        let more = having.len().saturating_sub(HOLDERS_SHOWN);
        told.push_str(&format!(" and {more} more"));
    }
    told
}

fn of(amounts: &Amounts, name: &str) -> Quantity {
    held(amounts, name)
}

pub(super) async fn list(reader: &Reader<'_>) -> Result<Sheet, Problem> {
    let mut sheet = Sheet { title: "Nodes and GPUs".to_owned(), ..Sheet::default() };
    let nodes = reader.objects(Kind::Node, "", &mut sheet).await?;
    let pods = match facts::queue::room(reader.cluster()).await {
        // without the nodes, only pods of one namespace were read
        Ok((pods, all)) if !all.is_empty() || nodes.is_empty() => pods,
        _ => {
            sheet.hidden.push("you have no right to list all pods, so requests are not known".to_owned());
            Vec::new()
        }
    };
    let all = in_use(&nodes, &pods);
    let row = |node: &NodeUse| {
        vec![
            Cell::link(address(&["nodes", NO_NAMESPACE, &node.name]), &node.name),
            Cell::state(node.state, group(node)),
            cpus(of(&node.held, "cpu"), of(&node.capacity, "cpu")),
            memory(of(&node.held, "memory"), of(&node.capacity, "memory")),
            count(gpus(&node.held), gpus(&node.capacity)),
            Cell::text(with_gpus(node)),
            Cell::count(node.holders.len()),
            Cell::text(&node.why),
            Cell::time(&node.since),
        ]
    };
    let headings = [
        "Name",
        "State",
        "CPUs requested",
        "Memory requested",
        "GPUs requested",
        "GPUs requested by",
        "Jobs and pods",
        "Why",
        "State changed",
    ];
    sheet.parts.push(main_table(&headings, all.iter().map(row).collect(), "There are no nodes.", ""));
    Ok(sheet)
}

pub(super) async fn one(reader: &Reader<'_>, name: &str) -> Result<Sheet, Problem> {
    let cluster = reader.cluster();
    let node = object(cluster, Kind::Node, name).await?;
    let (pods, all) = facts::queue::room(cluster).await?;
    let mut hidden = Vec::new();
    if all.is_empty() {
        hidden.push("you have no right to list all pods: only those of your namespace are shown".to_owned());
    }
    let used = in_use(std::slice::from_ref(&node), &pods).pop().unwrap_or_default();
    let info = |member: &str| Cell::text(read::text(&node["status"]["nodeInfo"], member));
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let taints: Vec<String> = taints
        .map(|taint| {
            let text = |member: &str| read::text(taint, member);
            format!("{}={}:{}", text("key"), text("value"), text("effect"))
        })
        .collect();
    let addresses = node["status"]["addresses"].as_array().into_iter().flatten();
    let addresses: Vec<&str> = addresses.map(|address| read::text(address, "address")).collect();
    let row = |holder: &NodeHolder| {
        let link = match holder.is_job {
            true => Cell::link(reader.job(&holder.namespace, &holder.name), &holder.name),
            false => Cell::text(format!("pod {}", holder.name)),
        };
        #[expect(clippy::cast_precision_loss, reason = "amounts of resources")]
        let number = |amount: i64, text: String| Cell::number(amount as f64, text);
        let (cpu, memory, gpu) = (of(&holder.held, "cpu"), of(&holder.held, "memory"), gpus(&holder.held));
        vec![
            link,
            Cell::text(&holder.namespace),
            Cell::count(holder.pods),
            number(cpu.milli_value(), cpu.to_string()),
            number(memory.value(), gib(memory.value())),
            number(gpu.value(), gpu.to_string()),
        ]
    };
    let rows = used.holders.iter().map(row).collect();
    let holders =
        table("Requested by", &["Job", "Namespace", "Pods", "CPUs", "Memory", "GPUs"], rows, "No pod is on it.");
    let extended = used.capacity.iter().filter(|(name, _)| name.contains('/'));
    let extended: Vec<String> = extended.map(|(name, amount)| format!("{name}: {amount}")).collect();
    Ok(Sheet {
        title: name.to_owned(),
        subtitle: "Node".to_owned(),
        state: Some(Cell::state(used.state, group(&used))),
        hidden,
        parts: vec![
            facts(
                "Overview",
                vec![
                    ("Why", Cell::text(&used.why)),
                    ("State changed", Cell::time(&used.since)),
                    ("CPUs requested", cpus(of(&used.held, "cpu"), of(&used.capacity, "cpu"))),
                    ("Memory requested", memory(of(&used.held, "memory"), of(&used.capacity, "memory"))),
                    ("GPUs requested", count(gpus(&used.held), gpus(&used.capacity))),
                    ("Devices", Cell::text(extended.join(", "))),
                    ("Addresses", Cell::text(addresses.join(", "))),
                    ("Taints", Cell::text(taints.join(", "))),
                    ("Operating system", info("osImage")),
                    ("Kernel", info("kernelVersion")),
                    ("Agent", info("kubeletVersion")),
                ],
            ),
            holders,
            timeline(cluster, &node).await,
            Part::Commands {
                title: "Commands".to_owned(),
                commands: vec![
                    Command {
                        title: "Cordon: schedule no new pods here",
                        command: format!("kubectl{} cordon {name}", cluster.kubectl_flags),
                    },
                    Command {
                        title: "Uncordon: schedule pods here again",
                        command: format!("kubectl{} uncordon {name}", cluster.kubectl_flags),
                    },
                    Command { title: "Resource use of all jobs", command: format!("trainyard top{}", cluster.flags) },
                ],
            },
            yaml(node.clone()),
        ],
        ..Sheet::default()
    })
}
