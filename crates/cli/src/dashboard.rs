//! `dashboard`: opens the dashboard of this machine's control plane, signed in.

use crate::{daemon, exit, output};
use client::codes::ErrorCode;
use client::home::Home;
use client::{ApiServer, ClientError, Cluster};
use grammar::{DashboardArgs, Format, Global};
use serde_json::{Value, json};
use std::process::{Command, Stdio};

/// Programs that open an address in the user's browser; the first that exists is taken.
const OPENERS: [&str; 3] = ["xdg-open", "wslview", "open"];

/// `trainyard dashboard`.
pub(crate) async fn open(args: &DashboardArgs, global: &Global) -> Result<u8, ClientError> {
    let home = Home::find(global.home.as_deref())?;
    let running = match daemon::answering(&home).await {
        Some(running) => running,
        None => {
            let running = daemon::start(&home, &[], None)?;
            eprintln!("started the control plane ({}); stop it with: trainyard down", running.server);
            running
        }
    };
    let Some(dashboard) = running.dashboard else {
        return Err(ClientError::Usage(
            ErrorCode::FlagRefused,
            "the control plane was started with --dashboard none; start it again without that flag: trainyard down; trainyard up -d"
                .to_owned(),
        ));
    };
    let path = home.kubeconfig();
    let text = std::fs::read_to_string(&path);
    let text = text.map_err(|source| ClientError::Io { doing: "read", path: path.clone(), source })?;
    let kubeconfig: Value = serde_saphyr::from_str(&text).unwrap_or_default();
    let token = &kubeconfig["users"][0]["user"]["token"];
    let server = ApiServer { url: dashboard.clone(), ..ApiServer::default() };
    let client = Cluster::of_token(&server, token.as_str().unwrap_or_default()).await?.client;
    let request = http::Request::post("/api/codes").body(Vec::new()).expect("a constant path is one");
    let answer: Value = client.request(request).await?;
    let url = format!("{dashboard}/login?code={}", answer["code"].as_str().unwrap_or_default());
    match args.output.output {
        format @ (Format::Json | Format::Yaml) => {
            output::print(&json!({"url": url, "expiresInSeconds": answer["expiresInSeconds"]}), format);
        }
        Format::Table | Format::Wide | Format::Name => println!("{url}"),
    }
    if args.no_open || matches!(args.output.output, Format::Json | Format::Yaml) {
        return Ok(exit::OK);
    }
    match opened(&url) {
        Some(with) => eprintln!("opened with {with}; the address can be used once, within a minute"),
        None => {
            eprintln!("no browser could be opened; open the address yourself, within a minute (it can be used once)")
        }
    }
    Ok(exit::OK)
}

/// The program that opened an address; `None` where there is no screen, or none of them works.
fn opened(url: &str) -> Option<&'static str> {
    let has_screen = cfg!(target_os = "macos")
        || ["DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"].iter().any(|name| std::env::var_os(name).is_some());
    let opens = |program: &&&str| {
        let mut command = Command::new(program);
        command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    has_screen.then(|| OPENERS.iter().find(opens)).flatten().copied()
}
