//! A cache of the runtimes, from a watch, in every replica: most admissions need one, and asking the API server for it each
//! time was a quarter of the requests that a TrainJob costs.

use api::object::Target;
use driver::cache::Cache;
use driver::{Driver, Options};
use jiff::Timestamp;
use kube::Client;
use plan::runtime::RuntimeKind;
use reconcile::{Decision, Primary, Reconciler, Wakes, Watch, World};
use std::sync::Arc;

/// Reads, and never decides.
struct Reader;

impl Reconciler for Reader {
    type Observed = ();

    fn name(&self) -> &'static str {
        "runtime-reader"
    }

    fn primary(&self) -> Primary {
        Primary::Kind(RuntimeKind::ClusterTrainingRuntime.gvk())
    }

    fn watches(&self) -> Vec<Watch> {
        vec![Watch { gvk: RuntimeKind::TrainingRuntime.gvk(), wakes: Wakes::Nothing }]
    }

    fn observe(&self, _: &dyn World, _: &Target) -> Option<()> {
        None
    }

    fn decide(&self, (): &(), _: Timestamp) -> Decision {
        Decision::nothing()
    }
}

/// A driver that keeps the runtimes (of one namespace, where it is given), and what it keeps.
pub fn runtimes(client: Client, namespace: Option<String>) -> (Driver, Arc<Cache>) {
    let workers = [(Reader.name(), 1)].into();
    let mut driver = Driver::with(client, Options { namespace, workers, ..Options::default() });
    driver.add(Reader);
    let cache = driver.cache();
    (driver, cache)
}
