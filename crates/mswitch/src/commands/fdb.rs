//! `mswitch fdb`.

use control::client::Client;
use control::proto;

use super::{answer, note, print};
use crate::cli::FdbCommand;
use crate::failure::Failure;
use crate::render;

pub(super) async fn run(client: &mut Client, command: FdbCommand) -> Result<(), Failure> {
    match command {
        FdbCommand::Show { bridge, mac, port, vlan, output } => {
            let (port, mac) = (port.unwrap_or_default(), mac.unwrap_or_default());
            let fdb = client.list_fdb(proto::ListFdbRequest { bridge, port, vlan, mac }).await?.into_inner();
            answer(output, &fdb, |fdb| render::fdb::list(&fdb.entries))
        }
        FdbCommand::Flush { bridge, port, vlan } => {
            let request = proto::FlushFdbRequest { bridge, port: port.unwrap_or_default(), vlan };
            let flushed = client.flush_fdb(request).await?.into_inner();
            let noun = if flushed.entries == 1 { "address" } else { "addresses" };
            print(&format!("{} {noun} flushed\n", render::units::count(flushed.entries)))
        }
        FdbCommand::Add { bridge, mac, port, vlan } => {
            let request = proto::AddFdbEntryRequest { bridge, mac, vlan, port };
            client.add_fdb_entry(request).await?.into_inner().notes.iter().for_each(note);
            Ok(())
        }
        FdbCommand::Del { bridge, mac, port, vlan } => {
            let port = port.unwrap_or_default();
            client.delete_fdb_entry(proto::DeleteFdbEntryRequest { bridge, mac, vlan, port }).await?;
            Ok(())
        }
    }
}
