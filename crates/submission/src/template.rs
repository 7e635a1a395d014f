//! A commented job.yaml for a script, to start from.

use crate::code::{Code, Start, stem};
use crate::launcher::Launcher;
use crate::python::{self, Question, find};
use crate::runtime::PLAIN;
use crate::setting::Setting;
use crate::spec::Spec;
use client::ClientError;
use std::fmt::Write;

/// The runtime `plain` of laptops; on a cluster it must be installed.
const PLAIN_RUNTIME: &str = include_str!("../../../manifests/laptop/plain.yaml");
/// The runtime for each package that a script may import. The first match counts, so a package comes before those that it builds on.
const RUNTIMES: [(&str, &str, &str); 8] = [
    ("deepspeed", "deepspeed-distributed", "deepspeed"),
    ("mlx", "mlx-distributed", "mlx"),
    ("jax", "jax-distributed", "jax"),
    ("xgboost", "xgboost-distributed", "xgboost"),
    ("torch", "torch-distributed", "torch"),
    ("lightning", "torch-distributed", "torch"),
    ("pytorch_lightning", "torch-distributed", "torch"),
    ("transformers", "torch-distributed", "torch"),
];

/// The files for a script, by name, and the name of its job.
#[derive(Clone, Debug)]
pub struct Template {
    pub name: String,
    pub files: Vec<(&'static str, String)>,
}

/// Returns the files; writes nothing.
///
/// Errors: the script does not exist.
pub async fn template(spec: &Spec) -> Result<Template, ClientError> {
    let code = Code::find(spec)?;
    let setting = Setting::of(spec, &code, Vec::new())?;
    let (runtime, framework) = match &spec.runtime {
        Some(name) => (name.clone(), RUNTIMES.iter().find(|(_, runtime, _)| runtime == name).map_or(PLAIN, |r| r.2)),
        None => wanted(&imports(&code, &setting).await),
    };
    let text = job(spec, &code, &setting, &runtime, framework);
    let mut files = vec![("job.yaml", text)];
    if runtime == PLAIN {
        files.push(("runtime.yaml", PLAIN_RUNTIME.to_owned()));
    }
    Ok(Template { name: job_name(spec, &code), files })
}

/// The packages that the script imports; none if there is no Python to ask.
async fn imports(code: &Code, setting: &Setting) -> Vec<String> {
    let Some(interpreter) = find("python3", &setting.path(), &setting.folder).path() else { return Vec::new() };
    if code.start != Start::Python {
        return Vec::new();
    }
    let question = Question {
        interpreter,
        script: Some(code.script.clone()),
        folder: setting.folder.clone(),
        variables: setting.variables(),
        cache: python::cache_folder(),
    };
    question.ask().await.ok().and_then(|answer| answer.script).map(|script| script.imports).unwrap_or_default()
}

/// The runtime and the framework for these imports.
fn wanted(imports: &[String]) -> (String, &'static str) {
    let fits = RUNTIMES.iter().find(|(module, _, _)| imports.iter().any(|name| name == module));
    fits.map_or((PLAIN.to_owned(), PLAIN), |(_, runtime, framework)| ((*runtime).to_owned(), framework))
}

fn job_name(spec: &Spec, code: &Code) -> String {
    spec.name.clone().unwrap_or_else(|| stem(&code.named))
}

/// A text as a YAML scalar: JSON strings are YAML scalars.
fn scalar(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Writes the text of the file.
fn job(spec: &Spec, code: &Code, setting: &Setting, runtime: &str, framework: &str) -> String {
    let name = job_name(spec, code);
    let script = code.script.strip_prefix(&setting.folder).unwrap_or(&code.script).to_string_lossy().into_owned();
    let variables = ["PATH", "PYTHONUNBUFFERED"];
    let words = Launcher::of(framework).words(&code.start, &local(&script, code), None, variables.into_iter());
    let mut command = vec![setting.folder.to_string_lossy().into_owned()];
    command.extend(words);
    let command: Vec<String> = command.iter().map(|word| scalar(word)).collect();
    let nodes = spec.nodes.unwrap_or(1);
    let mut text = String::new();
    let mut line = |words: std::fmt::Arguments<'_>| writeln!(text, "{words}").expect("a String takes all text");
    line(format_args!("# {} as a TrainJob, written by `trainyard init`. On this machine:", code.title()));
    line(format_args!("#   trainyard up --detach"));
    line(format_args!("#   kubectl --kubeconfig \"$(trainyard kubeconfig)\" apply -f job.yaml"));
    line(format_args!("#   trainyard logs -f {name}"));
    line(format_args!(
        "# What differs on a cluster is said where it stands. All fields: kubectl explain trainjob.spec"
    ));
    line(format_args!("apiVersion: trainer.kubeflow.org/v1alpha1"));
    line(format_args!("kind: TrainJob"));
    line(format_args!("metadata:"));
    line(format_args!(
        "  name: {} # kubectl refuses to change a job that runs: delete it first, or choose another name",
        scalar(&name)
    ));
    line(format_args!("  annotations: # docs/annotations.md has all of them"));
    line(format_args!("    trainyard.dev/failure-policy: fail-fast # the first process that fails ends the job"));
    line(format_args!("    # trainyard.dev/retries: \"2\" # start all ranks anew, up to so many times"));
    line(format_args!("spec:"));
    line(format_args!("  runtimeRef:"));
    let others = if runtime == PLAIN { "; a cluster gets this one by: kubectl apply -f runtime.yaml" } else { "" };
    line(format_args!("    name: {} # others: trainyard runtimes{others}", scalar(runtime)));
    line(format_args!("  trainer:"));
    line(format_args!("    numNodes: {nodes}"));
    if framework != PLAIN && framework != "jax" && framework != "xgboost" {
        let processes = spec.nproc_per_node.unwrap_or(1);
        line(format_args!("    numProcPerNode: {processes} # one for each GPU, where there are GPUs"));
    }
    line(format_args!("    # resourcesPerNode: # what each node needs"));
    line(format_args!("    #   limits: {{cpu: \"4\", memory: 8Gi, nvidia.com/gpu: \"1\"}}"));
    line(format_args!(
        "    # image: example.com/{name}:1 # on a cluster: an image that has the script; here images are ignored"
    ));
    line(format_args!(
        "    # On a cluster, where the image has the script, instead of the next two lines: command: [{}]",
        cluster_words(framework, code, &script)
    ));
    line(format_args!("    command: [sh, -c, 'cd \"$0\" && exec \"$@\"']"));
    line(format_args!("    args: [{}]", command.join(", ")));
    line(format_args!("    env:"));
    line(format_args!("      - {{name: PYTHONUNBUFFERED, value: \"1\"}} # lines as they are printed"));
    line(format_args!("      # Where python3 and torchrun are looked up here; leave it out on a cluster."));
    line(format_args!("      - {{name: PATH, value: {}}}", scalar(&setting.path())));
    text
}

/// A path of the folder, written for a shell: a program without a slash would be looked up on the PATH.
fn local(script: &str, code: &Code) -> String {
    let bare = !script.contains('/') && code.start == Start::Program(Vec::new());
    if bare { format!("./{script}") } else { script.to_owned() }
}

fn cluster_words(framework: &str, code: &Code, script: &str) -> String {
    let script = format!("/workspace/{script}");
    let words = Launcher::of(framework).words(&code.start, &script, None, ["PYTHONUNBUFFERED"].into_iter());
    words.iter().map(|word| scalar(word)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::trainer::TrainJob;
    use std::path::Path;

    #[test]
    fn a_runtime_fits_what_the_script_imports() {
        let of = |names: &[&str]| wanted(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).0;
        assert_eq!(of(&["os", "torch"]), "torch-distributed");
        assert_eq!(of(&["torch", "deepspeed"]), "deepspeed-distributed");
        assert_eq!(of(&["transformers"]), "torch-distributed");
        assert_eq!(of(&["os"]), "plain");
    }

    #[test]
    fn the_file_is_a_train_job() {
        let script = Path::new("/my code/train \"v2\".py");
        let code = Code {
            script: script.into(),
            named: script.into(),
            folder: Some("/my code".into()),
            start: Start::Python,
            module: None,
        };
        let spec = Spec { nodes: Some(2), nproc_per_node: Some(4), ..Spec::default() };
        let setting = Setting {
            inherited: vec![("PATH".to_owned(), "/a b:/bin".to_owned())],
            folder: "/my code".into(),
            ..Setting::default()
        };
        let text = job(&spec, &code, &setting, "torch-distributed", "torch");
        let job: TrainJob = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(job.metadata.name.as_deref(), Some("train--v2"));
        let trainer = serde_json::to_value(job.spec.trainer).unwrap();
        assert_eq!(trainer["args"], serde_json::json!(["/my code", "torchrun", "train \"v2\".py"]));
        assert_eq!((&trainer["numNodes"], &trainer["numProcPerNode"]), (&2.into(), &4.into()));
        assert_eq!(trainer["env"][1], serde_json::json!({"name": "PATH", "value": "/a b:/bin"}));
        let plain: TrainJob = serde_saphyr::from_str(&super::job(&spec, &code, &setting, "plain", "plain")).unwrap();
        assert!(serde_json::to_value(plain.spec.trainer).unwrap().get("numProcPerNode").is_none());
    }
}
