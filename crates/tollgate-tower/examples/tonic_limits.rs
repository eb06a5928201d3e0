//! A tonic server that limits calls by a field of their metadata. Refusals are `RESOURCE_EXHAUSTED`,
//! with a `RetryInfo` that says when to try again.

use std::error::Error;

use http::HeaderName;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tollgate::{Gate, MemoryStore, Missing, Policy, Rule};
use tollgate_tower::{Axes, RateLimitLayer};
use tonic::Request;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let rule = Rule::new("per-tenant").by("tenant").quota("2/min").missing(Missing::Share);
    let policy = Policy::builder().rule(rule).build()?;
    let layer = RateLimitLayer::new(Gate::new(policy, MemoryStore::new()))
        .axes(Axes::new().header("tenant", HeaderName::from_static("tenant")));

    // The service limited here is gRPC's own health check; any other would do.
    let (_, health) = tonic_health::server::health_reporter();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = Server::builder().layer(layer).add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));

    let channel = Channel::from_shared(format!("http://{address}"))?.connect().await?;
    let mut client = HealthClient::new(channel);
    for tenant in ["acme", "acme", "acme", "other"] {
        let mut request = Request::new(HealthCheckRequest::default());
        request.metadata_mut().insert("tenant", MetadataValue::try_from(tenant)?);
        match client.check(request).await {
            Ok(_) => println!("{tenant}: served"),
            Err(status) => {
                let retry =
                    status.get_error_details().retry_info().and_then(|info| info.retry_delay);
                println!("{tenant}: {:?}, again in {retry:?}", status.code());
            }
        }
    }
    Ok(())
}
