//! `butleradm events`: what the controllers have told, in order.

use super::block_on;
use crate::engine::{Home, Objects};
use crate::exit::Exit;
use crate::output;
use crate::progress::OutputFormat;
use anyhow::{Context as _, Result};
use butler_api::names;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The cluster. Not needed when there is only one.
    cluster: Option<String>,
    /// How to speak.
    #[arg(long, short, value_enum, default_value_t, env = "BUTLER_OUTPUT")]
    output: OutputFormat,
}

pub(crate) fn run(args: Args) -> Result<Exit> {
    block_on(events(args))
}

async fn events(args: Args) -> Result<Exit> {
    let home = Home::usual();
    let cluster = home.choose(args.cluster.as_deref())?;
    let objects = Objects::attach(&home, &cluster).await?;
    let api: Api<Event> = Api::namespaced(objects.client.clone(), names::SYSTEM_NAMESPACE);
    let list = api.list(&ListParams::default()).await.context("cannot list the events");
    objects.stop().await;
    let mut events = list?.items;
    events.sort_by_key(time);
    for event in &events {
        output::line(&match args.output {
            OutputFormat::Text => line(event),
            OutputFormat::Json => json!({
                "time": time(event), "type": event.type_, "reason": event.reason, "object": object(event),
                "message": event.note,
            })
            .to_string(),
        });
    }
    Ok(Exit::Ok)
}

fn time(event: &Event) -> String {
    event.event_time.as_ref().map(|time| time.0.to_string()).unwrap_or_default()
}

fn object(event: &Event) -> String {
    let regarding = event.regarding.clone().unwrap_or_default();
    format!("{}/{}", regarding.kind.unwrap_or_default(), regarding.name.unwrap_or_default())
}

fn line(event: &Event) -> String {
    let kind = event.type_.as_deref().unwrap_or("Normal");
    let reason = event.reason.as_deref().unwrap_or("-");
    let note = event.note.as_deref().unwrap_or_default();
    format!("{}  {kind:7}  {reason:22}  {}  {note}", time(event), object(event))
}
