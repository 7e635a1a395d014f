//! A node agent for the cluster of the current kubeconfig: `agent <data directory> <node name>`. With it, pods of any
//! Kubernetes API server can be bound to this machine and run as processes.

use node::agent::{Agent, Config};
use node::kube_world::KubeWorld;
use std::process::ExitCode;
use tokio_util::sync::CancellationToken;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    match words.as_slice() {
        [word, rest @ ..] if word == "shim" => node::shim::main(rest.iter().cloned()),
        [data, name] => {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime can be made");
            let name = name.to_string_lossy().into_owned();
            runtime.block_on(run(data.into(), &name));
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("usage: agent <data directory> <node name>");
            ExitCode::from(2)
        }
    }
}

async fn run(data: std::path::PathBuf, name: &str) {
    let client = kube::Client::try_default().await.expect("a kubeconfig is there");
    let program = std::env::current_exe().expect("the program has a path");
    let config = Config::new(data, name, vec![program.into(), "shim".into()]);
    let agent = Agent::new(config, KubeWorld::new(client, name)).await.expect("the data directory can be used");
    println!("{:?}, {} GPUs", agent.isolation(), agent.gpus.len());
    let stop = CancellationToken::new();
    let told = stop.clone();
    tokio::select! {
        () = agent.run(stop) => {}
        _ = tokio::signal::ctrl_c() => told.cancel(),
    }
}
