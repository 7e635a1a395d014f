//! Our controllers on a cluster of somebody else's, for development: against a real API server with no controller manager
//! they must do what the recordings say.
//!
//! `KUBECONFIG=K cargo run -p operator --example controllers -- job,gc,namespace,serviceaccount`

use driver::Driver;
use operator::{Controllers, Surroundings};
use std::error::Error;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    rustls::crypto::ring::default_provider().install_default().map_err(|_| "no crypto provider")?;
    let names = std::env::args().nth(1).unwrap_or_else(|| "all".to_owned());
    let controllers: Controllers = names.parse()?;
    let client = kube::Client::try_default().await?;
    let mut driver = Driver::new(client);
    controllers.add_to(&mut driver, &Surroundings { root_ca: "none".to_owned(), ..Surroundings::default() });
    let stop = CancellationToken::new();
    let on_signal = stop.clone();
    tokio::spawn(async move {
        let _ = tokio::signal::ctrl_c().await;
        on_signal.cancel();
    });
    driver.run(stop).await;
    Ok(())
}
