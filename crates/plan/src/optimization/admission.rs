//! What the API server asks before it stores an OptimizationJob: rules that upstream's schema cannot say.

use super::search::{ANNOTATION_ALGORITHM, Search};
use super::suggest::suggest;
use super::template;
use crate::admission::validate_trainjob;
use crate::plugins::View;
use api::field::{Error, ErrorList, Path};
use api::object;
use serde_json::Value;

/// Name of the webhook that validates OptimizationJobs. Upstream has none.
pub const OPTIMIZATIONJOB_VALIDATOR: &str = "validator.optimizationjob.trainer.kubeflow.org";

/// Warnings about an OptimizationJob that is created (`old` absent) or updated, or why it is refused. `view` finds runtimes
/// and PriorityClasses.
///
/// # Errors
/// What [`Search::parse`] finds; a first trial whose TrainJob would be refused; another algorithm than before. An update
/// is not asked for more than what it changes, and the spec cannot change.
pub fn validate_optimizationjob(new: &Value, old: Option<&Value>, view: View<'_>) -> Result<Vec<String>, ErrorList> {
    if let Some(old) = old {
        let algorithm = |object| object::annotation(object, ANNOTATION_ALGORITHM);
        if algorithm(old) == algorithm(new) {
            return Ok(Vec::new());
        }
        let field = Path::new("metadata").child("annotations").key(ANNOTATION_ALGORITHM);
        return Err(vec![Error::forbidden(&field, "the algorithm cannot change once the search is there")]);
    }
    let search = Search::parse(new)?;
    let trial = template::trial(new, &search.parameters, 0, &suggest(&search, 0, &[]));
    validate_trainjob(&trial, None, view).map_err(|denial| {
        let text = format!("the TrainJob of a trial would be refused: {}", denial.message());
        vec![Error::forbidden(&Path::new("spec").child("trainJobTemplate"), text)]
    })
}
