//! `mswitch fdb`.

use control::client::Client;
use control::proto;

use super::{answer, print};
use crate::cli::FdbCommand;
use crate::failure::Failure;
use crate::render;

pub(super) async fn run(client: &mut Client, command: FdbCommand) -> Result<(), Failure> {
    match command {
        FdbCommand::Show { bridge, output } => {
            let fdb = client.list_fdb(proto::ListFdbRequest { bridge }).await?.into_inner();
            answer(output, &fdb, |fdb| render::fdb::list(&fdb.entries))
        }
        FdbCommand::Flush { bridge, port } => {
            let request = proto::FlushFdbRequest { bridge, port: port.unwrap_or_default() };
            let flushed = client.flush_fdb(request).await?.into_inner();
            print(&format!("{} addresses removed\n", render::units::count(flushed.entries)))
        }
        FdbCommand::Add { bridge, mac, port, vlan } => {
            client.add_fdb_entry(proto::AddFdbEntryRequest { bridge, mac, vlan, port }).await?;
            Ok(())
        }
        FdbCommand::Del { bridge, mac, port, vlan } => {
            let port = port.unwrap_or_default();
            client.delete_fdb_entry(proto::DeleteFdbEntryRequest { bridge, mac, vlan, port }).await?;
            Ok(())
        }
    }
}
