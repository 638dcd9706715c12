//! Queueing: packets wait at a port in classes, and leave in the order of a scheduler.
//!
//! A port whose limits say so ([`Waiting`](crate::protection::Waiting)) has a queue for each class in front of each of
//! its transmit queues, and a drain, a task of one worker, that empties them. Other ports have none of this and pay
//! nothing.
//!
//! - `classes.rs`: the classes of a port: rates, weights, counters; which class is next;
//! - `scheduler.rs`: strict priority between groups of classes, deficit round robin within them;
//! - `early.rs`: early detection of congestion;
//! - `retained.rs`: the queue of a class: a ring in the switch's own memory;
//! - `backlog.rs`: whether anything waits for a transmit queue;
//! - `lane.rs`: the queues of one transmit queue, as workers fill them;
//! - `trust.rs`: the class that incoming packets get by their headers.
//!
//! A packet passes at once, without a copy, while nothing waits for its transmit queue, tokens last and the receiver has
//! room; else it is copied into its class's queue. The [drain](crate::worker::tasks) takes packets in the scheduler's
//! order, a batch at a time, as fast as rates and the receiver allow; what the receiver has no room for stays.
//!
//! Rates are the port's and its classes', whatever transmit queue packets leave through; the order is that of one
//! transmit queue, so that between several of them neither priorities nor weights hold.

pub(crate) mod backlog;
pub(crate) mod classes;
pub(crate) mod early;
pub(crate) mod lane;
pub(crate) mod retained;
pub(crate) mod scheduler;
pub(crate) mod trust;
