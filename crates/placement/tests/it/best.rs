//! Random chains and graphs of up to 7 tasks with up to 12 choices each, against all plans there are. `PROPTEST_CASES` asks for more
//! (`make soak`).

use placement::Cloud;
use placement::egress;
use placement::solve::{Choice, Step, Target, solve};
use proptest::prelude::*;

const CLOUDS: [Cloud; 5] = [Cloud::Aws, Cloud::Gcp, Cloud::Azure, Cloud::Lambda, Cloud::RunPod];
/// All plans of a case are tried: so many at most.
const MOST_PLANS: usize = 3000;

fn choice() -> impl Strategy<Value = Choice> {
    (0..CLOUDS.len(), 1..40u32, 1..6u32).prop_map(|(cloud, dollars, hours)| Choice {
        cloud: CLOUDS[cloud],
        dollars: f64::from(dollars) / 2.0,
        seconds: f64::from(hours) * 1800.0,
    })
}

fn step() -> impl Strategy<Value = (Vec<Choice>, f64, Option<(usize, u32)>, u8)> {
    let gigabytes = prop::sample::select(vec![0.0, 10.0, 50.0, 200.0, 5000.0, 20_000.0]);
    let source = prop::option::of((0..CLOUDS.len(), 1..300u32));
    (prop::collection::vec(choice(), 1..=12), gigabytes, source, any::<u8>())
}

/// A chain, or a graph in which each task waits for some of those before it.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    (prop::collection::vec(step(), 1..=7), any::<bool>()).prop_map(|(list, is_chain)| {
        let mut plans = 1;
        let mut steps: Vec<Step> = Vec::new();
        for (at, (mut choices, gigabytes, source, bits)) in list.into_iter().enumerate() {
            choices.truncate((MOST_PLANS / plans).clamp(1, 12));
            plans *= choices.len();
            let parents = if is_chain {
                at.checked_sub(1).into_iter().collect()
            } else {
                (0..at).filter(|parent| bits & (1 << parent) != 0).collect()
            };
            let source = source.map(|(cloud, gigabytes)| (CLOUDS[cloud], f64::from(gigabytes)));
            steps.push(Step { choices, parents, source, gigabytes });
        }
        steps
    })
}

/// Dollars and seconds of each plan; tasks come after their parents.
fn all_plans(steps: &[Step]) -> Vec<(f64, f64)> {
    fn go(steps: &[Step], done: &mut Vec<(Cloud, f64)>, dollars: f64, found: &mut Vec<(f64, f64)>) {
        let Some(step) = steps.get(done.len()) else {
            found.push((dollars, done.iter().map(|(_, end)| *end).fold(0.0, f64::max)));
            return;
        };
        for choice in &step.choices {
            let mut dollars = dollars + choice.dollars;
            let mut start: f64 = 0.0;
            if let (Some((from, gigabytes)), true) = (step.source, step.parents.is_empty()) {
                dollars += egress::dollars(from, choice.cloud, gigabytes);
                start = egress::seconds(from, choice.cloud, gigabytes);
            }
            for parent in &step.parents {
                let (from, end) = done[*parent];
                dollars += egress::dollars(from, choice.cloud, steps[*parent].gigabytes);
                start = start.max(end + egress::seconds(from, choice.cloud, steps[*parent].gigabytes));
            }
            done.push((choice.cloud, start + choice.seconds));
            go(steps, done, dollars, found);
            done.pop();
        }
    }
    let mut found = Vec::new();
    go(steps, &mut Vec::new(), 0.0, &mut found);
    found
}

fn least(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.fold(f64::INFINITY, f64::min)
}

fn same(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(1500), ..ProptestConfig::default() })]

    #[test]
    fn no_plan_is_better(steps in steps()) {
        let plans = all_plans(&steps);
        let cheapest = least(plans.iter().map(|(dollars, _)| *dollars));
        let soonest = least(plans.iter().map(|(_, seconds)| *seconds));
        let soonest_and_cheapest =
            least(plans.iter().filter(|(_, seconds)| same(*seconds, soonest)).map(|(dollars, _)| *dollars));

        let by_cost = solve(&steps, Target::Cost, false).unwrap();
        prop_assert!(same(by_cost.dollars, cheapest), "{} dollars, and {cheapest} is possible", by_cost.dollars);
        prop_assert!(
            plans.iter().any(|(dollars, seconds)| same(*dollars, by_cost.dollars) && same(*seconds, by_cost.seconds)),
            "{by_cost:?} is no plan"
        );
        let by_time = solve(&steps, Target::Time, false).unwrap();
        prop_assert!(same(by_time.seconds, soonest), "{} seconds, and {soonest} is possible", by_time.seconds);
        prop_assert!(
            same(by_time.dollars, soonest_and_cheapest),
            "{} dollars, and {soonest_and_cheapest} is possible as soon", by_time.dollars
        );
        let by_time_alone = solve(&steps, Target::Time, true).unwrap();
        prop_assert!(same(by_time_alone.seconds, soonest));
    }
}

#[test]
fn a_circle_and_a_task_without_a_choice_have_no_plan() {
    let one = Choice { cloud: Cloud::Aws, dollars: 1.0, seconds: 1.0 };
    let step = |parents: &[usize]| Step { choices: vec![one], parents: parents.to_vec(), ..Step::default() };
    assert_eq!(solve(&[step(&[1]), step(&[0])], Target::Cost, false), None);
    assert_eq!(solve(&[step(&[7])], Target::Cost, false), None);
    assert_eq!(solve(&[step(&[]), Step::default()], Target::Cost, false), None);
    assert_eq!(solve(&[], Target::Cost, false).map(|solution| solution.picks), Some(Vec::new()));
}

/// Thirty tasks, each of which reads what three others wrote: what would be 5^30 plans is bounded.
#[test]
fn a_wide_graph_is_solved() {
    let steps: Vec<Step> = (0..30usize)
        .map(|at| Step {
            choices: CLOUDS
                .iter()
                .enumerate()
                .map(|(cloud, name)| Choice {
                    cloud: *name,
                    dollars: [3.0, 2.5, 4.0, 2.0, 6.0][(cloud + at) % 5],
                    seconds: 3600.0,
                })
                .collect(),
            parents: (1..=3).filter_map(|back| at.checked_sub(back)).collect(),
            source: None,
            gigabytes: 20.0,
        })
        .collect();
    let solution = solve(&steps, Target::Cost, false).unwrap();
    let all_in_one_place =
        CLOUDS.iter().enumerate().map(|(cloud, _)| steps.iter().map(|step| step.choices[cloud].dollars).sum::<f64>());
    assert!(solution.dollars <= least(all_in_one_place) + 1e-9, "{}", solution.dollars);
}
