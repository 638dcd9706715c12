//! `mswitch trace`.

use control::client::Client;
use control::proto;

use super::{answer, print};
use crate::cli::{Output, TraceArgs};
use crate::failure::Failure;
use crate::packet_text;
use crate::render;

pub(super) async fn run(client: &mut Client, args: TraceArgs) -> Result<(), Failure> {
    match args.packet {
        Some(text) => {
            let typed = packet_text::parse(&text)?;
            let (port, packet) = (ingress(args.port, typed.in_port)?, typed.bytes);
            let request = proto::TracePacketRequest { bridge: args.bridge, port, packet };
            let trace = client.trace_packet(request).await?.into_inner();
            answer(Output { json: args.json }, &trace, render::trace::text)
        }
        None => live(client, args).await,
    }
}

/// Returns the ingress port, from `--port` or from the packet.
fn ingress(option: Option<String>, in_port: Option<String>) -> Result<String, Failure> {
    match (option, in_port) {
        (Some(option), Some(in_port)) if option != in_port => Err(Failure::new(format_args!(
            "--port names `{option}`, and `in_port` names `{in_port}`; name one ingress port"
        ))),
        (Some(port), _) | (None, Some(port)) => Ok(port),
        (None, None) => Err(Failure::new("the ingress port is missing; add --port PORT")),
    }
}

async fn live(client: &mut Client, args: TraceArgs) -> Result<(), Failure> {
    let count = args.live.unwrap_or_default();
    let port = ingress(args.port, None)?;
    let request = proto::TraceLiveRequest { bridge: args.bridge, port, count };
    let mut traces = client.trace_live(request).await?.into_inner();
    let mut last = proto::Trace::default();
    loop {
        let trace = tokio::select! {
            trace = traces.message() => trace?,
            _ = tokio::signal::ctrl_c() => None,
        };
        let Some(trace) = trace else { break };
        if args.json {
            let json = serde_json::to_string(&trace).map_err(Failure::new)?;
            print(&format!("{json}\n"))?;
        } else {
            print(&render::trace::text(&trace))?;
        }
        last = trace;
    }
    if last.missed + last.omitted > 0 {
        eprintln!(
            "mswitch: {} packets were not traced, and {} steps and outputs were omitted: the trace could not keep up",
            last.missed, last.omitted
        );
    }
    Ok(())
}
