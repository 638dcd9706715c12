//! `mswitch trace`.

use control::client::Client;
use control::{hex, proto};

use super::{answer, print};
use crate::cli::{Output, TraceArgs};
use crate::failure::Failure;
use crate::render;

pub(super) async fn run(client: &mut Client, args: TraceArgs) -> Result<(), Failure> {
    match args.packet {
        Some(packet) => {
            let packet = hex::parse(&packet).map_err(Failure::new)?;
            let request = proto::TracePacketRequest { bridge: args.bridge, port: args.port, packet };
            let trace = client.trace_packet(request).await?.into_inner();
            answer(Output { json: args.json }, &trace, render::trace::text)
        }
        None => live(client, args).await,
    }
}

async fn live(client: &mut Client, args: TraceArgs) -> Result<(), Failure> {
    let count = args.live.unwrap_or_default();
    let request = proto::TraceLiveRequest { bridge: args.bridge, port: args.port, count };
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
            "mswitch: {} packets were not traced and {} steps and outputs left out; they came too fast",
            last.missed, last.omitted
        );
    }
    Ok(())
}
