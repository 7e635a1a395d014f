//! What is kept of TrainJobs' pods when their objects go: logs, how each run ended, the pod as it was last. It stays with
//! the TrainJob, within bounds, and goes with it.
//!
//! The node moves the directory of a pod that is gone into the store (`store`); a task watches TrainJobs and JobSets
//! (`follow`) and so knows whose pod it was. The API server asks `serve`, which puts live and kept pods together.

mod bounds;
mod follow;
mod runs;
mod serve;
mod store;

pub use follow::follow;
pub use serve::Evidence;
pub use store::Store;
