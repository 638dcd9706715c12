//! `mswitch events`.

use control::client::Client;
use control::proto;

use super::print;
use crate::cli::EventsArgs;
use crate::failure::Failure;
use crate::render;

pub(super) async fn run(client: &mut Client, args: EventsArgs) -> Result<(), Failure> {
    let request = proto::WatchEventsRequest { bridge: args.bridge.unwrap_or_default(), kinds: args.kinds };
    let mut events = client.watch_events(request).await?.into_inner();
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        let event = tokio::select! {
            event = events.message() => event?,
            _ = tokio::signal::ctrl_c() => return Ok(()),
        };
        let Some(event) = event else {
            return Err(Failure::new("the daemon has ended"));
        };
        if args.json {
            let json = serde_json::to_string(&event).map_err(Failure::new)?;
            print(&format!("{json}\n"))?;
        } else {
            print(&render::events::line(&event))?;
        }
        left -= 1;
    }
    Ok(())
}
