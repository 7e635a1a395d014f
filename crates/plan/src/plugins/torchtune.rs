//! torchtune: the command `tune run` completed with recipe, configuration and the runtime's paths.
//! Source: upstream's `pkg/runtime/framework/plugins/torch/torchtune.go`.

use super::torch::Processes;
use super::{Findings, Validation};
use crate::info::Info;
use crate::job::{Job, list, strings};
use crate::names::{Ancestor, LABEL_ANCESTOR, NODE, TRAINER_PORT};
use api::field::{Error, Path};
use api::object;
use api::trainer::Trainer;
use serde_json::{Value, json};

/// Settings that belong to the runtime: taken over from its command, refused in the TrainJob's arguments.
const RUNTIME_SETTINGS: [&str; 4] =
    ["output_dir", "tokenizer.path", "checkpointer.checkpoint_dir", "tokenizer.merges_file"];

const LLAMA3_2_1B: &str = "llama3_2/1B";
const LLAMA3_2_3B: &str = "llama3_2/3B";
const LLAMA3_3_70B: &str = "llama3_3/70B";
const QWEN2_5_1_5B: &str = "qwen2_5/1.5B";

/// What is tuned, as the TrainJob's arguments tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Full,
    Lora,
    QLora,
}

/// On how much it is tuned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    OneDevice,
    OneNode,
    Nodes,
}

/// Whether the command is exactly `tune run`.
pub fn is_asked_for(command: Option<&[String]>) -> bool {
    command.is_some_and(|c| c == ["tune", "run"])
}

/// What the command is completed with.
pub fn arguments(info: &Info, job: &Job, nodes: i32, processes: Processes) -> Vec<String> {
    let gpus = info.gpus_per_node(job);
    let several = match processes {
        Processes::Auto => gpus > 1,
        Processes::Count(count) => count > 1,
    };
    let mut arguments = Vec::new();
    if nodes > 1 || several {
        arguments.push(format!("--rdzv_endpoint={}:{TRAINER_PORT}", job.master_host()));
    }
    let (recipe, suffix) = recipe(method(job.trainer.as_ref(), nodes), scale(nodes, processes, gpus));
    arguments.extend([recipe.to_owned(), "--config".to_owned(), format!("{}{suffix}", model(job))]);
    arguments.extend(runtime_settings(info));
    arguments
}

/// Faults of a TrainJob whose command is `tune run`.
pub fn validate(cx: &Validation<'_>, trainer: &Trainer, findings: &mut Findings) {
    let spec = Path::new("spec");
    let at = |member: &str| spec.child("trainer").child(member);
    let runtime = spec.child("runtimeRef").child("name");
    let errors = &mut findings.errors;
    let model = model(cx.new);
    let model = model.as_str();
    if ![LLAMA3_2_1B, LLAMA3_2_3B, LLAMA3_3_70B, QWEN2_5_1_5B].contains(&model) {
        let detail = format!("must have a supported pretrained model, invalid model configured: {model}");
        errors.push(Error::invalid(&runtime, cx.new.runtime_ref.name.as_str(), detail));
    }
    // The TrainJob's own count alone: a runtime for several nodes is its author's business.
    let nodes = trainer.num_nodes.unwrap_or(1);
    if nodes > 1 && model != LLAMA3_3_70B {
        errors.push(Error::invalid(&at("numNodes"), nodes, format!("must be 1 for {model} model")));
    }
    let processes = trainer.num_proc_per_node.map_or(Processes::Auto, |n| Processes::Count(i64::from(n)));
    let method = method(Some(trainer), nodes);
    let scale = scale(nodes, processes, cx.info.gpus_per_node(cx.new));
    if method == Method::QLora && scale != Scale::Nodes {
        if model == QWEN2_5_1_5B {
            let detail = format!("QLoRA is not supported for {model} model");
            errors.push(Error::invalid(&runtime, cx.new.runtime_ref.name.as_str(), detail));
        }
        if scale == Scale::OneNode && [LLAMA3_2_1B, LLAMA3_2_3B].contains(&model) {
            let shown = trainer.num_proc_per_node.map_or(json!("auto"), Value::from);
            let detail = format!("must be auto or 1 for {model} model when using QLoRA");
            errors.push(Error::invalid(&at("numProcPerNode"), shown, detail));
            let shown = trainer.resources_per_node.clone().unwrap_or(Value::Null);
            let detail = format!("must have gpu resource with value 1 for {model} model when using QLoRA");
            errors.push(Error::invalid(&at("resourcesPerNode"), shown, detail));
        }
    }
    if nodes > 1 && method != Method::Full {
        let detail = "LoRA fine-tuning is not supported for multi-node training in TorchTune";
        errors.push(Error::invalid(&at("numNodes"), nodes, detail));
    }
    for (index, argument) in trainer.args.iter().flatten().enumerate() {
        let key = argument.split('=').next().unwrap_or_default();
        if RUNTIME_SETTINGS.contains(&key) {
            let detail = format!("must not set immutable config {key:?} in trainer args; it is managed by the runtime");
            errors.push(Error::invalid(&at("args").index(index), argument.as_str(), detail));
        }
    }
}

fn scale(nodes: i32, processes: Processes, gpus: i64) -> Scale {
    match nodes {
        1 if processes == Processes::Count(1) || gpus == 1 => Scale::OneDevice,
        ..=1 => Scale::OneNode,
        2.. => Scale::Nodes,
    }
}

/// Recipe and the suffix of its configuration.
fn recipe(method: Method, scale: Scale) -> (&'static str, &'static str) {
    match (scale, method) {
        (Scale::OneDevice, Method::QLora) => ("lora_finetune_single_device", "_qlora_single_device"),
        (Scale::OneDevice, Method::Lora) => ("lora_finetune_single_device", "_lora_single_device"),
        (Scale::OneDevice, Method::Full) => ("full_finetune_single_device", "_full_single_device"),
        (Scale::OneNode, Method::QLora) => ("lora_finetune_distributed", "_qlora"),
        (Scale::OneNode, Method::Lora) => ("lora_finetune_distributed", "_lora"),
        (Scale::OneNode, Method::Full) => ("full_finetune_distributed", "_full"),
        (Scale::Nodes, Method::QLora | Method::Lora | Method::Full) => ("full_finetune_distributed", "_full_multinode"),
    }
}

/// QLoRA is asked for by its own switch (unless DoRA is on), LoRA by naming the modules. A job of no nodes gets neither.
fn method(trainer: Option<&Trainer>, nodes: i32) -> Method {
    if nodes < 1 {
        return Method::Full;
    }
    let args: &[String] = trainer.and_then(|t| t.args.as_deref()).unwrap_or_default();
    let on = |key: &str| {
        args.iter()
            .filter_map(|arg| arg.split_once('='))
            .any(|(name, value)| name.contains(key) && value.trim().eq_ignore_ascii_case("true"))
    };
    if !on("model.use_dora") && on("model.quantize_base") {
        Method::QLora
    } else if args.iter().any(|arg| arg.contains("model.lora_attn_modules")) {
        Method::Lora
    } else {
        Method::Full
    }
}

/// The model's name for torchtune, from the runtime's: `torchtune-llama3.2-1b` → `llama3_2/1B`. Empty for names that are
/// not of three parts.
fn model(job: &Job) -> String {
    match job.runtime_ref.name.split('-').collect::<Vec<_>>().as_slice() {
        [_, family, size] => format!("{}/{}", family.replace('.', "_"), size.to_uppercase()),
        _ => String::new(),
    }
}

/// The parts of the runtime's trainer commands that set [`RUNTIME_SETTINGS`].
fn runtime_settings(info: &Info) -> Vec<String> {
    let mut settings = Vec::new();
    for job in list(&info.template, "replicatedJobs") {
        let label = job.pointer("/template/metadata/labels").and_then(|l| l.get(LABEL_ANCESTOR));
        if label.and_then(Value::as_str) != Some(Ancestor::Trainer.as_str()) {
            continue;
        }
        let containers = job.pointer("/template/spec/template/spec").map(|pod| list(pod, "containers"));
        for container in containers.into_iter().flatten().filter(|c| object::text(c, "name") == NODE) {
            let command = strings(container, "command").unwrap_or_default();
            settings.extend(
                command
                    .into_iter()
                    .filter(|part| part.split('=').next().is_some_and(|key| RUNTIME_SETTINGS.contains(&key))),
            );
        }
    }
    settings
}
