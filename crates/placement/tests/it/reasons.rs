//! A small market: what is chosen, and why all else is not.

use placement::place::{Placement, Task};
use placement::search::Why;
use placement::{Amount, Block, Catalogue, Cloud, Feature, Market, Request, Rules, Target, Unplaceable, place};

const AWS: &str = "\
InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone
m6i.large,,,2,8,,0.1,0.04,us-east-1,us-east-1a
m6i.large,,,2,8,,0.1,0.03,us-east-1,us-east-1b
m6i.large,,,2,8,,0.12,0.05,eu-west-1,eu-west-1a
m6i.2xlarge,,,8,32,,0.4,,us-east-1,us-east-1a
p3.2xlarge,V100,1,8,61,,3.06,0.9,us-east-1,us-east-1a
p3.2xlarge,V100,1,8,61,,3.5,,eu-west-1,eu-west-1a
x1.xlarge,V100,1,16,100,,5,,us-east-1,us-east-1a
";
const LAMBDA: &str = "\
InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice
gpu_1x_a10,A10,1,8,200,0.05,us-east-1,,
gpu_8x_v100,V100,8,92,448,4.4,us-east-1,,
";
const ENABLED: [Cloud; 2] = [Cloud::Aws, Cloud::Lambda];

fn catalogue() -> Catalogue {
    let mut catalogue = Catalogue::default();
    catalogue.add("aws", "vms.csv", AWS).unwrap();
    catalogue.add("lambda", "vms.csv", LAMBDA).unwrap();
    catalogue
}

fn task(requests: &[Request]) -> Task {
    Task { requests: requests.iter().map(|one| (one.clone(), 3600.0)).collect(), nodes: 1, ..Task::default() }
}

fn v100(count: f64) -> Request {
    Request { accelerator: Some(("V100".into(), count)), ..Request::default() }
}

fn placed(task: &Task, rules: Rules, blocked: &[Block]) -> Result<Placement, Unplaceable> {
    let catalogue = catalogue();
    let market = Market { catalogue: &catalogue, enabled: &ENABLED, nodes: &[], blocked, rules };
    place(std::slice::from_ref(task), &market, Target::Cost).map(|mut plan| plan.tasks.remove(0))
}

fn chosen(placement: &Placement) -> (String, &str) {
    let one = &placement.chosen().unwrap().candidate;
    (one.infra(), &one.instance_type)
}

/// What was dropped, and why, in one line each.
fn told(search: &placement::search::Search) -> Vec<String> {
    let line = |one: &placement::search::Rejection| {
        format!(
            "{}: {}{}",
            one.cloud.name(),
            one.what.as_ref().map(|what| format!("{what}: ")).unwrap_or_default(),
            one.why
        )
    };
    search.rejections.iter().map(line).collect()
}

#[test]
fn the_cheapest_wins_and_the_rest_says_why_not() {
    let placement = placed(&task(&[v100(1.0)]), Rules::Own, &[]).unwrap();
    assert_eq!(chosen(&placement), ("aws/us-east-1".into(), "p3.2xlarge"));
    assert_eq!(placement.ranked.len(), 2);
    assert_eq!(
        told(&placement.search),
        ["aws: x1.xlarge: dearer than p3.2xlarge", "lambda: no such accelerator; it has V100:8"]
    );
}

#[test]
fn a_limit_holds_in_each_region() {
    let request = Request { max_hourly_cost: Some(3.1), ..v100(1.0) };
    let ours = placed(&task(std::slice::from_ref(&request)), Rules::Own, &[]).unwrap();
    assert_eq!(ours.ranked.len(), 1);
    assert!(
        told(&ours.search).contains(
            &"aws: p3.2xlarge in eu-west-1: over max_hourly_cost: the cheapest costs $3.5 an hour".to_owned()
        )
    );
    assert_eq!(placed(&task(&[request]), Rules::SkyPilot, &[]).unwrap().ranked.len(), 2);
}

#[test]
fn a_task_without_accelerators_leaves_them_to_others() {
    let request = Request { cpus: Some(Amount::AtLeast(8.0)), ..Request::default() };
    let ours = placed(&task(std::slice::from_ref(&request)), Rules::Own, &[]).unwrap();
    assert_eq!(chosen(&ours), ("aws/us-east-1".into(), "m6i.2xlarge"));
    assert_eq!(ours.ranked.last().unwrap().candidate.instance_type, "gpu_1x_a10");
    let theirs = placed(&task(std::slice::from_ref(&request)), Rules::SkyPilot, &[]).unwrap();
    assert_eq!(chosen(&theirs), ("lambda/us-east-1".into(), "gpu_1x_a10"));
    // nothing else has so much memory
    let large = Request { memory: Some(Amount::AtLeast(150.0)), ..Request::default() };
    assert_eq!(chosen(&placed(&task(&[large]), Rules::Own, &[]).unwrap()).1, "gpu_1x_a10");
}

#[test]
fn spot_is_chosen_by_zone_where_it_has_a_price() {
    let small = Request {
        cpus: Some(Amount::Exactly(2.0)),
        use_spot: true,
        needs: [Feature::Spot].into(),
        ..Request::default()
    };
    let placement = placed(&task(std::slice::from_ref(&small)), Rules::Own, &[]).unwrap();
    assert_eq!(chosen(&placement), ("aws/us-east-1/us-east-1b".into(), "m6i.large"));
    assert_eq!(told(&placement.search), ["lambda: the cloud does not support spot_instance"]);
    let block = Block { zone: Some("us-east-1b".into()), use_spot: Some(true), ..Block::default() };
    let blocked = placed(&task(&[small]), Rules::Own, &[block]).unwrap();
    assert_eq!(chosen(&blocked).0, "aws/us-east-1/us-east-1a");
    assert!(
        told(&blocked.search)
            .contains(&"aws: m6i.large in us-east-1/us-east-1b: blocked: it could not be had before".into())
    );
}

#[test]
fn ordered_takes_the_first_that_can_be_had() {
    let (none, dear, cheap) = (v100(3.0), v100(8.0), v100(1.0));
    let list = [none, dear, cheap];
    let ordered = Task { ordered: true, ..task(&list) };
    assert_eq!(chosen(&placed(&ordered, Rules::Own, &[]).unwrap()).1, "gpu_8x_v100");
    assert_eq!(chosen(&placed(&task(&list), Rules::Own, &[]).unwrap()).1, "p3.2xlarge");
}

#[test]
fn nothing_is_an_error_with_all_reasons() {
    let cases: [(Request, &[&str]); 5] = [
        (v100(3.0), &["aws: no such accelerator", "lambda: no such accelerator; it has V100:8"]),
        (
            Request { region: Some("mars".into()), ..v100(1.0) },
            &["aws: no such accelerator", "lambda: no such accelerator"],
        ),
        (Request { cloud: Some(Cloud::Gcp), ..v100(1.0) }, &["gcp: the cloud is not enabled"]),
        (
            Request { cloud: Some(Cloud::Aws), cpus: Some(Amount::Exactly(3.0)), ..Request::default() },
            &["aws: no machine of that size; a `+` behind `cpus` or `memory` lets larger ones in"],
        ),
        (
            Request { cloud: Some(Cloud::Aws), instance_type: Some("p3.2xlarge".into()), ..v100(2.0) },
            &["aws: p3.2xlarge has V100:1"],
        ),
    ];
    for (request, reasons) in cases {
        match placed(&task(std::slice::from_ref(&request)), Rules::Own, &[]) {
            Err(Unplaceable::Nothing { task: 0, search }) => assert_eq!(told(&search), reasons, "{request:?}"),
            other => panic!("{request:?}: {other:?}"),
        }
    }
    let rejected = placed(&Task { nodes: 2, ..task(&[v100(1.0)]) }, Rules::Own, &[]).unwrap();
    assert!(rejected.search.rejections.iter().all(|one| !matches!(one.why, Why::Lacks(_))));
}
