//! `sky explain`: every candidate, why all else was dropped, and what would make it fit.

use placement::place::Plan;
use placement::search::{Search, Why};
use placement::{Cloud, Unplaceable};

use super::launch::{Failure, Named, considered, find, named};
use super::options::override_all;
use super::{Circumstances, Printed, table};
use crate::commands::Call;
use crate::place::describe;
use crate::task::Task;

pub(super) fn explain(call: &Call, world: &Circumstances<'_>) -> Printed {
    let Named { mut tasks, overrides, source, .. } = match named(call, world) {
        Ok(named) => named,
        Err(printed) => return printed,
    };
    let mut printed = Printed::default();
    if let Err(error) = override_all(&mut tasks, &overrides, call, world) {
        return printed.refused_in(&error, source.as_ref());
    }
    match find(&mut tasks, world) {
        Err(Failure::Refused(error)) => printed.refused_in(&error, source.as_ref()),
        Err(Failure::Nothing(Unplaceable::Nothing { task, search })) => {
            let asked = tasks.get(task).map(asked).unwrap_or_default();
            dropped(&mut printed, &search);
            printed.fail(1, format!("Nothing that may be used meets {asked}."))
        }
        Err(Failure::Nothing(other)) => printed.fail(1, other.to_string()),
        Ok(plan) => {
            told(&mut printed, &tasks, &plan);
            printed
        }
    }
}

fn asked(task: &Task) -> String {
    let list: Vec<String> = task.resources.list.iter().map(|one| describe(one, true)).collect();
    format!("{}x {}", task.num_nodes, list.join(" or "))
}

fn told(printed: &mut Printed, tasks: &[Task], plan: &Plan) {
    considered(printed, tasks, plan);
    printed.line(format!(
        "Together: ${:.2} and {:.1} hours, where each task takes an hour.",
        plan.dollars,
        plan.seconds / 3600.0
    ));
    for (task, placement) in tasks.iter().zip(&plan.tasks) {
        printed.line(format!("\n{}: {}", task.name.as_deref().unwrap_or("The task"), asked(task)));
        let row = |(at, way): (usize, &placement::place::Ranked)| {
            let one = &way.candidate;
            let accelerator =
                one.accelerator.as_ref().map_or_else(|| "-".into(), |(name, count)| format!("{name}:{count}"));
            let chosen = if at == placement.chosen { "chosen" } else { "" };
            vec![
                one.infra(),
                one.instance_type.clone(),
                accelerator,
                format!("{:.4}", one.hourly),
                format!("{:.2}", way.dollars),
                chosen.into(),
            ]
        };
        let rows: Vec<Vec<String>> = placement.ranked.iter().enumerate().map(row).collect();
        printed.line(table::plain(&["CANDIDATE", "INSTANCE", "GPUS", "$/HOUR", "TASK", ""], &rows));
        dropped(printed, &placement.search);
    }
}

fn dropped(printed: &mut Printed, search: &Search) {
    if search.rejections.is_empty() {
        return;
    }
    printed.line("\nDropped:");
    let rows: Vec<Vec<String>> = search
        .rejections
        .iter()
        .map(|one| {
            let what = one.what.clone().unwrap_or_else(|| "-".into());
            vec![one.cloud.display().to_owned(), what, one.why.to_string(), remedy(one.cloud, &one.why)]
        })
        .collect();
    printed.line(table::plain(&["CLOUD", "WHAT", "WHY", "WHAT WOULD HELP"], &rows));
}

fn remedy(cloud: Cloud, why: &Why) -> String {
    match why {
        Why::NotEnabled => format!("`allowed_clouds` in ~/.sky/config.yaml with {}, or its price list", cloud.name()),
        Why::Lacks(_) => "another cloud, or less of a wish".into(),
        Why::NoSuchAccelerator { near } => near.first().map(|name| format!("accelerators: {name}")).unwrap_or_default(),
        Why::OtherAccelerators { has: Some((name, count)), .. } => format!("accelerators: {name}:{count}"),
        Why::OtherAccelerators { has: None, .. } => "another instance_type".into(),
        Why::NoDiskTier => "disk_tier: best".into(),
        Why::NoPrice { spot: true } => "use_spot: false".into(),
        Why::TooDear { least } => format!("max_hourly_cost: {}", (least * 100.0).ceil() / 100.0),
        Why::NotThere | Why::NoImage => "another region".into(),
        Why::Full { needed, .. } => format!("{needed} free machines"),
        Why::NoSuchSize | Why::NoPriceList | Why::NoPrice { spot: false } | Why::Blocked | Why::Dearer { .. } => {
            String::new()
        }
    }
}
