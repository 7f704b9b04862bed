// SPDX-License-Identifier: GPL-2.0
/* Messages between a link's queue pair and its socket, see link.h. */
#include <linux/slab.h>
#include <net/sock.h>

#include "carrier.h"
#include "compat.h"
#include "link.h"
#include "sock.h"
#include "stats.h"
#include "trace.h"

/* Memory of receive buffers -------------------------------------------------------- */

static int room_map(struct sdp_room *room, struct ib_device *ib)
{
	u64 dma = ib_dma_map_page(ib, room->page, 0, room->size,
				  DMA_FROM_DEVICE);

	if (ib_dma_mapping_error(ib, dma))
		return -ENOMEM;
	room->dma = dma;
	room->mapped = true;
	return 0;
}

static void room_unmap(struct sdp_room *room, struct ib_device *ib)
{
	if (room->mapped)
		ib_dma_unmap_page(ib, room->dma, room->size, DMA_FROM_DEVICE);
	room->mapped = false;
}

/*
 * The pages of a buffer are cut out of a block of the next power of two, which begins at
 * a multiple of its length.  If all buffers began there, their octets would share few
 * places in the processor's caches: so what is left over is before and behind.
 */
static int room_alloc(struct sdp_room *room, u32 size, u32 index)
{
	size_t block = PAGE_SIZE << get_order(size);
	size_t spare = block - PAGE_ALIGN(size);
	gfp_t gfp = GFP_KERNEL | __GFP_NOWARN;
	size_t before;
	void *octets;

	/* a program can do with less, and must not wait for compaction */
	if (size > SDP_RX_FIRST_SIZE)
		gfp |= __GFP_NORETRY;
	octets = alloc_pages_exact(block, gfp);
	if (!octets)
		return -ENOMEM;
	/* neighbours are a few pages apart, for a message takes as many */
	before = index * 3 * PAGE_SIZE % (spare + PAGE_SIZE);
	free_pages_exact(octets, before);
	octets += before;
	free_pages_exact(octets + PAGE_ALIGN(size), spare - before);
	room->page = virt_to_page(octets);
	room->size = size;
	return 0;
}

static void room_free(struct sdp_room *room)
{
	if (room->page)
		free_pages_exact(page_address(room->page), room->size);
	room->page = NULL;
}

static void free_rooms(struct sdp_room *rooms)
{
	u32 i;

	for (i = 0; rooms && i < SDP_RX_BUFS; i++)
		room_free(&rooms[i]);
	kfree(rooms);
}

static struct sdp_room *alloc_rooms(u32 count, u32 size)
{
	struct sdp_room *rooms = kcalloc(SDP_RX_BUFS, sizeof(*rooms), GFP_KERNEL);
	u32 i;

	for (i = 0; rooms && i < count; i++) {
		if (room_alloc(&rooms[i], size, i)) {
			free_rooms(rooms);
			return NULL;
		}
	}
	return rooms;
}

/* Receiving ------------------------------------------------------------------- */

static void rx_done(struct ib_cq *cq, struct ib_wc *wc);

static int post(struct sdp_link *link, struct sdp_rx *rx)
{
	struct ib_sge sge = {
		.addr = rx->room.dma,
		.length = rx->room.size,
		.lkey = link->dev->pd->local_dma_lkey,
	};
	struct ib_recv_wr wr = {
		.wr_cqe = &rx->cqe, .sg_list = &sge, .num_sge = 1,
	};

	rx->cqe.done = rx_done;
	ib_dma_sync_single_for_device(link->dev->ib, rx->room.dma,
				      rx->room.size, DMA_FROM_DEVICE);
	return ib_post_recv(link->qp, &wr, NULL);
}

/* Free a buffer of an earlier carrier that the program has read. */
static void drop_kept(struct sdp_link *link, struct sdp_rx *rx)
{
	lockdep_assert_held(&link->lock);
	room_free(&rx->room);
	if (--link->kept_count)
		return;
	/* what sdp_link_keep() added */
	atomic_sub(SDP_LINK_COST, &link->rx_more);
	kfree(link->kept);
	link->kept = NULL;
}

/* Replace the memory of a buffer by a larger spare one, if there is any. */
static int exchange(struct sdp_link *link, struct sdp_rx *rx)
{
	struct sdp_room *next;
	int ret;

	lockdep_assert_held(&link->lock);
	if (!link->spares)
		return 0;
	next = &link->spare[link->spares - 1];
	if (next->size <= rx->room.size)
		return 0;
	ret = room_map(next, link->dev->ib);
	if (ret)
		return ret;
	room_unmap(&rx->room, link->dev->ib);
	swap(rx->room, *next);
	room_free(next);
	link->spares--;
	return 0;
}

static void repost(struct sdp_link *link, struct sdp_rx *rx)
{
	lockdep_assert_held(&link->lock);
	if (rx->kept) {
		drop_kept(link, rx);
		return;
	}
	if (link->phase != SDP_LINK_UP)
		return;
	if (exchange(link, rx) || post(link, rx))
		sdp_link_down(link, ENOMEM);
	else
		sdp_credits_post(&link->conn.credits, 1);
}

/*
 * ChRcvBuf: a smaller size is of no use to us.  A larger one waits until the
 * program reads, because the socket must be able to pay for it.
 */
static void asked_to_resize(struct sdp_link *link)
{
	struct sdp_resize *r = &link->conn.resize;

	lockdep_assert_held(&link->lock);
	if (r->wish > r->own && !link->orphan)
		WRITE_ONCE(link->grow, true);
	else
		sdp_resize_answer(r, r->own, link->conn.credits.posted);
}

/*
 * A peer asks for credit when it has payload and no buffers left for it.  More of
 * them help if it is not the program that is slow, and if what is under way takes a
 * good part of them: up to half wait until the peer is told of them.
 */
static void asked_for_credit(struct sdp_link *link)
{
	u32 more = link->rx_count + link->rx_count / 2;
	u32 room = link->conn.resize.own * link->rx_count / 4;
	bool distant;

	lockdep_assert_held(&link->lock);
	distant = sdp_flow_asked(&link->rx_flow, link->rx_total,
				 ktime_to_us(ktime_get()),
				 sdp_carrier_rtt(link->carrier), room);
	/* small buffers get larger first */
	if (!distant || link->orphan || link->rx_full > link->rx_count / 2 ||
	    link->conn.resize.own == SDP_RX_FIRST_SIZE)
		return;
	link->rx_want = min_t(u32, more, SDP_RX_BUFS);
	if (link->rx_want > link->rx_count)
		WRITE_ONCE(link->grow, true);
}

/* The program's memory limit for all buffers; 0: give no more now */
static u32 limit_of(const struct sock *sk)
{
	int most = READ_ONCE(sock_net(sk)->ipv4.sysctl_tcp_rmem[2]);

	/* nothing takes memory back from sockets */
	if (sk_under_memory_pressure(sk))
		return 0;
	if (sk->sk_userlocks & SOCK_RCVBUF_LOCK)
		most = READ_ONCE(sk->sk_rcvbuf);
	return max(most, 0);
}

/* The largest size for all buffers within the limit, or 0 */
static u32 affordable(const struct sdp_link *link, const struct sock *sk,
		      u32 limit)
{
	u32 size = min_t(u32, link->conn.resize.wish,
			 sdp_tunable(sock_net(sk), SDP_RX_SIZE_MAX));

	size = min_t(u32, size, limit / max_t(u32, link->rx_count, SDP_RX_MANY));
	/* a multiple of the pages that it is made of */
	return round_down(size, SDP_RX_FIRST_SIZE);
}

/* Post buffers that have not been in use yet, until there are @count. */
static void begin_to_use(struct sdp_link *link, u32 count)
{
	struct sdp_rx *rx;

	lockdep_assert_held(&link->lock);
	while (link->rx_count < count && link->phase == SDP_LINK_UP) {
		rx = &link->rx[link->rx_count];
		WRITE_ONCE(link->rx_count, link->rx_count + 1);
		repost(link, rx);
	}
}

/* What to allocate */
struct sdp_plan {
	u32 moves;		/* of the link at this time */
	u32 wish;		/* the peer's, which it answers */
	u32 own, had;		/* size and number of the present buffers */
	u32 size, count;	/* and then */
	u32 spares;		/* so many are allocated, of @size */
};

/*
 * Until a peer has used up the present buffers, both they and the larger ones are
 * held, but only the latter charged.  So a larger size is at least twice as large.
 */
static void enlarge(struct sdp_plan *p, u32 size)
{
	p->size = size / 2 < p->own ? p->own : size;
	p->spares = p->size > p->own ? p->count : p->count - p->had;
}

/* False: there is nothing to do. */
static bool plan(struct sdp_link *link, const struct sock *sk, bool stuck,
		 struct sdp_plan *p)
{
	const struct sdp_resize *r = &link->conn.resize;
	u32 limit = limit_of(sk);
	u32 size;

	lockdep_assert_held(&link->lock);
	/* if the socket was disconnected, nothing would uncharge it */
	if (link->phase != SDP_LINK_UP || link->sk != sk)
		return false;
	/* buffers of the last time may be unused, or not announced yet */
	if (link->spares || r->answer || link->kept_count)
		return false;
	size = affordable(link, sk, limit);
	*p = (struct sdp_plan){
		.moves = link->moves, .wish = r->wish,
		.own = r->own, .had = link->rx_count,
		.count = max(link->rx_count,
			     min(link->rx_want, limit / max(size, r->own))),
	};
	if (stuck || size / 2 >= r->own)
		p->count = max_t(u32, p->count, SDP_RX_MANY);
	enlarge(p, size);
	return p->spares || link->grow;
}

/* There is no memory for more buffers: wait for the next time it is asked for. */
static void do_without(struct sdp_link *link)
{
	spin_lock_bh(&link->lock);
	link->rx_want = link->rx_count;
	if (!link->conn.resize.wish)
		WRITE_ONCE(link->grow, false);
	spin_unlock_bh(&link->lock);
}

/*
 * Allocate smaller buffers if contiguous memory of this size is missing, and if
 * even that of the present size is all there is, only those that are added.
 */
static struct sdp_room *alloc_most(struct sdp_plan *p)
{
	struct sdp_room *rooms = NULL;

	while (p->spares) {
		rooms = alloc_rooms(p->spares, p->size);
		if (rooms || p->size == p->own)
			break;
		enlarge(p, round_down(p->size / 2, SDP_RX_FIRST_SIZE));
	}
	return rooms;
}

/* Have the socket pay for all buffers that there will be. */
static bool charge(struct sdp_link *link, struct sock *sk,
		   const struct sdp_plan *p)
{
	u32 more = p->size * p->count;

	more -= min(more, link->charged);
	if (!__sk_mem_schedule(sk, more, SK_MEM_RECV))
		return false;
	sk_mem_charge(sk, more);
	link->charged += more;
	return true;
}

bool sdp_link_grow(struct sdp_link *link, struct sock *sk, bool stuck)
{
	struct sdp_room *rooms;
	struct sdp_plan p;
	bool grown = false;
	bool wanted;

	sock_owned_by_me(sk);
	spin_lock_bh(&link->lock);
	wanted = plan(link, sk, stuck, &p);
	spin_unlock_bh(&link->lock);
	if (!wanted)
		return false;
	rooms = alloc_most(&p);
	if (p.spares && (!rooms || !charge(link, sk, &p))) {
		free_rooms(rooms);
		do_without(link);
		return false;
	}
	spin_lock_bh(&link->lock);
	/* a link that has moved meanwhile begins anew, with few and small ones */
	if (link->phase == SDP_LINK_UP && link->moves == p.moves) {
		struct sdp_resize *r = &link->conn.resize;

		/* a new wish that came meanwhile is for the next time */
		if (r->wish == p.wish) {
			WRITE_ONCE(link->grow, false);
			sdp_resize_answer(r, p.size, link->conn.credits.posted);
		}
		if (rooms) {
			swap(link->spare, rooms);
			link->spares = p.spares;
			begin_to_use(link, p.count);
		}
		sdp_link_pump(link);
		grown = p.spares;
	}
	spin_unlock_bh(&link->lock);
	free_rooms(rooms);
	return grown;
}

/* HelloAck, which has to be the first message; section 8.1.1 (7) */
static void take_hello_ack(struct sdp_link *link, struct sdp_rx *rx, u32 len)
{
	struct sdp_terms terms;
	struct sdp_msg msg;

	lockdep_assert_held(&link->lock);
	if (sdp_decode(link->layout, page_address(rx->room.page), len, &msg) ||
	    sdp_hello_ack_check(&link->offer, &msg, &terms)) {
		sdp_count(link->seen.net, SDP_STAT_BAD_HELLO_ACK);
		trace_sdp_setup(link, SDP_STEP_ACK_TAKEN, -EPROTO);
		sdp_link_down(link, ECONNRESET);
		return;
	}
	trace_sdp_setup(link, SDP_STEP_ACK_TAKEN, 0);
	if (link->open)
		sdp_conn_resume(&link->conn, &link->offer, &terms);
	else
		sdp_conn_init(&link->conn, true, &link->offer, &terms);
	sdp_link_up(link);
	repost(link, rx);
	sdp_link_pump(link);
}

/* To be called after each change of link->urgent */
static void mark(struct sdp_link *link)
{
	lockdep_assert_held(&link->lock);
	WRITE_ONCE(link->marked, link->urgent.state != SDP_URGENT_NONE);
}

static bool urgent_is_inline(const struct sdp_link *link)
{
	return link->sk && sock_flag(link->sk, SOCK_URGINLINE);
}

/* Process the flags for octets out of band, before the payload can be read. */
static void take_urgent(struct sdp_link *link, const struct sdp_rx *rx,
			const struct sdp_msg *msg, u32 actions)
{
	const u8 *octets = page_address(rx->room.page);
	const u8 *last = NULL;
	bool tell = false;
	u64 read;

	lockdep_assert_held(&link->lock);
	if (!(actions & (SDP_DO_URGENT | SDP_DO_OOB)) && !link->marked)
		return;
	read = sdp_link_position(link);
	if (actions & SDP_DO_URGENT)
		tell = sdp_urgent_pend(&link->urgent, link->rx_total, read);
	if (actions & SDP_DO_OOB)
		last = octets + sdp_kind_of(msg->mid).header + msg->payload - 1;
	if (actions & SDP_DO_DELIVER)
		tell |= sdp_urgent_take(&link->urgent,
					link->rx_total + msg->payload, last, read);
	mark(link);
	if (link->sk)
		sdp_link_skip(link);
	if (tell && link->sk && !link->orphan)
		sdp_sock_urgent(link->sk);
}

/* Payload up to this size may be moved, so that it does not occupy a buffer */
#define JOIN_MOST	(SDP_RX_FIRST_SIZE / 4)

/*
 * When buffers get scarce because the program does not read, append a small
 * payload to that of the newest buffer, if there is room.  True: @rx is free.
 */
static bool join(struct sdp_link *link, const struct sdp_rx *rx)
{
	struct sdp_rx *last;
	u32 end;

	lockdep_assert_held(&link->lock);
	if (rx->len > JOIN_MOST || list_empty(&link->rx_ready) ||
	    link->rx_full + 4 < link->rx_count)
		return false;
	last = list_last_entry(&link->rx_ready, struct sdp_rx, entry);
	if (last->kept)
		return false;
	end = last->off + last->len;
	if (rx->len > last->room.size - end)
		return false;
	/* a program that copies from it now takes only what was there before */
	memcpy(page_address(last->room.page) + end,
	       page_address(rx->room.page) + rx->off, rx->len);
	last->len += rx->len;
	return true;
}

/* Give payload to the program.  True: @rx is free again. */
static bool deliver(struct sdp_link *link, struct sdp_rx *rx)
{
	bool joined = join(link, rx);

	lockdep_assert_held(&link->lock);
	if (!joined) {
		list_add_tail(&rx->entry, &link->rx_ready);
		WRITE_ONCE(link->rx_full, link->rx_full + 1);
	}
	WRITE_ONCE(link->rx_octets, link->rx_octets + rx->len);
	link->rx_total += rx->len;
	return joined;
}

static void trace_resize(const struct sdp_link *link, bool ours,
			 const struct sdp_msg *msg)
{
	if (trace_sdp_resize_enabled() && (msg->mid == SDP_MID_CH_RCV_BUF ||
					   msg->mid == SDP_MID_CH_RCV_BUF_ACK))
		trace_sdp_resize(link, ours, msg);
}

static void take(struct sdp_link *link, struct sdp_rx *rx, u32 len,
		 bool invalidated)
{
	u8 before = link->conn.fault;
	struct sdp_msg msg;
	u32 actions;

	lockdep_assert_held(&link->lock);
	if (sdp_decode(link->layout, page_address(rx->room.page), len, &msg)) {
		actions = sdp_conn_fault(&link->conn, SDP_FAULT_MALFORMED);
	} else {
		sdp_count_received(link->seen.net, &msg);
		trace_sdp_message_received(link, &msg);
		actions = sdp_conn_take(&link->conn, &msg, invalidated);
		trace_resize(link, false, &msg);
		if (msg.mid == SDP_MID_DATA && !msg.payload)
			asked_for_credit(link);
	}
	/* over rdma_cm the next connection could not come from the same port */
	if ((actions & SDP_DO_SUSPEND) && link->ops != &sdp_carrier_tcp)
		actions |= sdp_conn_fault(&link->conn, SDP_FAULT_UNEXPECTED);
	if (link->conn.fault && !before)
		sdp_link_fault(link, link->conn.fault);
	if (actions & SDP_DO_ADVERT)
		sdp_sink_refuse(&link->conn.sink);
	if (actions & SDP_DO_RESIZE)
		asked_to_resize(link);
	take_urgent(link, rx, &msg, actions);
	if (actions & SDP_DO_DELIVER) {
		rx->off = sdp_kind_of(msg.mid).header;
		rx->len = msg.payload;
		if (deliver(link, rx))
			repost(link, rx);
		sdp_link_undefer(link);
		if (link->sk)
			sk_incoming_cpu_update(link->sk);
		if (link->sk && !link->orphan)
			link->sk->sk_data_ready(link->sk);
		else if (link->orphan)
			actions |= sdp_conn_input(&link->conn, SDP_IN_ABORT);
	} else {
		repost(link, rx);
	}
	sdp_link_act(link, actions);
	sdp_link_pump(link);
}

/* Keep a message for sdp_link_take_early(). */
static void keep_early(struct sdp_link *link, struct sdp_rx *rx, u32 len,
		       bool invalidated)
{
	lockdep_assert_held(&link->lock);
	rx->len = len;
	rx->invalidated = invalidated;
	list_add_tail(&rx->entry, &link->rx_early);
}

/* With rdma_cm a message can precede the event that says we are connected. */
static void take_too_early(struct sdp_link *link, struct sdp_rx *rx, u32 len,
			   bool invalidated)
{
	lockdep_assert_held(&link->lock);
	if (link->connector) {
		/* that event brings HelloAck, which must be processed first */
		keep_early(link, rx, len, invalidated);
		return;
	}
	/* the peer sends only after it has received our HelloAck */
	sdp_link_up(link);
	/* have the work item report it to the listener */
	sdp_link_event(link, SDP_EV_PUMP);
	take(link, rx, len, invalidated);
}

void sdp_link_take_early(struct sdp_link *link)
{
	struct sdp_rx *rx;

	lockdep_assert_held(&link->lock);
	while (link->phase == SDP_LINK_UP && !list_empty(&link->rx_early)) {
		rx = list_first_entry(&link->rx_early, struct sdp_rx, entry);
		list_del(&rx->entry);
		take(link, rx, rx->len, rx->invalidated);
	}
}

static void rx_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct sdp_rx *rx = container_of(wc->wr_cqe, struct sdp_rx, cqe);
	bool invalidated = wc->wc_flags & IB_WC_WITH_INVALIDATE;
	struct sdp_link *link = rx->link;

	if (wc->status) {
		if (wc->status == IB_WC_LOC_LEN_ERR)
			sdp_link_fault(link, SDP_FAULT_SIZE);
		/* flushes: the device itself reports the end of the stream */
		if (wc->status != IB_WC_WR_FLUSH_ERR)
			sdp_link_abort(link, ECONNRESET);
		return;
	}
	ib_dma_sync_single_for_cpu(link->dev->ib, rx->room.dma, wc->byte_len,
				   DMA_FROM_DEVICE);
	spin_lock_bh(&link->lock);
	/* take() drops the lock: stay behind what came before UP */
	if (link->phase == SDP_LINK_UP && !list_empty(&link->rx_early))
		keep_early(link, rx, wc->byte_len, invalidated);
	else if (link->phase == SDP_LINK_UP)
		take(link, rx, wc->byte_len, invalidated);
	else if (link->phase == SDP_LINK_START && link->cm_id)
		take_too_early(link, rx, wc->byte_len, invalidated);
	/* not in a move's phase TCP, while the old queue pair is being destroyed */
	else if (link->connector && (link->phase == SDP_LINK_START ||
				     link->phase == SDP_LINK_ACK))
		take_hello_ack(link, rx, wc->byte_len);
	else
		sdp_link_down(link, ECONNRESET);
	spin_unlock_bh(&link->lock);
}

/* True: the buffer is used up and reposted, or freed. */
static bool consume(struct sdp_link *link, struct sdp_rx *rx, u32 octets)
{
	lockdep_assert_held(&link->lock);
	rx->off += octets;
	rx->len -= octets;
	WRITE_ONCE(link->rx_octets, link->rx_octets - octets);
	if (rx->len)
		return false;
	list_del(&rx->entry);
	if (!rx->kept)
		WRITE_ONCE(link->rx_full, link->rx_full - 1);
	repost(link, rx);
	return true;
}

void sdp_link_skip(struct sdp_link *link)
{
	struct sdp_urgent *u = &link->urgent;
	struct sdp_rx *rx;
	u64 read;

	lockdep_assert_held(&link->lock);
	if (urgent_is_inline(link))
		u->gone = 0;
	while (!link->held && (read = sdp_link_position(link)) < u->gone) {
		rx = list_first_entry_or_null(&link->rx_ready, struct sdp_rx,
					      entry);
		if (!rx)
			break;
		consume(link, rx, min_t(u64, rx->len, u->gone - read));
	}
}

void sdp_link_consume(struct sdp_link *link, struct sdp_rx *rx, u32 octets)
{
	bool free;

	spin_lock_bh(&link->lock);
	link->held = false;
	free = octets && consume(link, rx, octets);
	if (link->marked) {
		sdp_urgent_read(&link->urgent, sdp_link_position(link));
		mark(link);
		sdp_link_skip(link);
	}
	if (free)
		sdp_link_pump(link);
	spin_unlock_bh(&link->lock);
}

/* Sending ----------------------------------------------------------------------- */

static void tx_done(struct ib_cq *cq, struct ib_wc *wc);

static struct sdp_piece *queued(struct sdp_link *link, u16 index)
{
	return &link->queue[(link->queue_head + index) % SDP_TX_QUEUE];
}

bool sdp_link_queue(struct sdp_link *link, struct page *page, u32 off, u32 len)
{
	struct sdp_piece *last;

	lockdep_assert_held(&link->lock);
	if (link->queue_count) {
		last = queued(link, link->queue_count - 1);
		if (last->page == page && last->off + last->len == off) {
			last->len += len;
			link->queue_octets += len;
			put_page(page);
			return true;
		}
	}
	if (link->queue_count == SDP_TX_QUEUE)
		return false;
	*queued(link, link->queue_count++) =
		(struct sdp_piece){ .page = page, .off = off, .len = len };
	link->queue_octets += len;
	return true;
}

/* More than two of TCP's segments on most links */
static bool is_large(const struct sdp_tx *tx)
{
	return tx->payload > 2 * (1500 - 52);
}

/* Is a message in flight whose completion will call sdp_link_pump()? */
static bool flows(const struct sdp_link *link)
{
	return link->tx_busy > link->tx_quiet;
}

/* The octets that one message can have */
static struct sdp_queue offered(struct sdp_link *link)
{
	struct sdp_queue q = {};
	u16 i;

	for (i = 0; i < link->queue_count && i < link->tx_pieces; i++)
		q.octets += queued(link, i)->len;
	/*
	 * If more is queued than one message can hold, send.  Otherwise Nagle's
	 * rule applies, but only while a large message is in flight, whose ACK
	 * comes soon.  TCP delays the ACK of a small one because we have
	 * nothing to send.  Small octets gather anyway when credits run short:
	 * then the reading program sets the pace.
	 */
	q.flows = flows(link);
	q.partial = q.octets < link->queue_octets ||
		    (!link->more && (link->nodelay || !link->tx_large));
	/* keep back the last octet, which may have to go out of band */
	if (link->urgents && q.octets && q.octets == link->queue_octets &&
	    sdp_conn_sends(&link->conn))
		q.octets--;
	return q;
}

/* Move octets from the queue to a message. */
static void fill(struct sdp_link *link, struct sdp_tx *tx, u32 octets)
{
	tx->payload = octets;
	tx->pieces = 0;
	link->queue_octets -= octets;
	while (octets) {
		struct sdp_piece *head = queued(link, 0);
		struct sdp_piece *p = &tx->piece[tx->pieces++];

		*p = *head;
		if (head->len <= octets) {
			link->queue_head = (link->queue_head + 1) % SDP_TX_QUEUE;
			link->queue_count--;
		} else {
			get_page(p->page);
			p->len = octets;
			head->off += octets;
			head->len -= octets;
		}
		octets -= p->len;
	}
}

static void unmap(struct sdp_link *link, struct sdp_tx *tx)
{
	while (tx->pieces) {
		struct sdp_piece *p = &tx->piece[--tx->pieces];

		if (tx->dma[tx->pieces])
			ib_dma_unmap_page(link->dev->ib, tx->dma[tx->pieces],
					  p->len, DMA_TO_DEVICE);
		put_page(p->page);
	}
}

static int map(struct sdp_link *link, struct sdp_tx *tx, struct ib_sge *sge)
{
	struct ib_device *ib = link->dev->ib;
	int i;

	memset(tx->dma, 0, sizeof(tx->dma));
	for (i = 0; i < tx->pieces; i++) {
		struct sdp_piece *p = &tx->piece[i];
		u64 dma = ib_dma_map_page(ib, p->page, p->off, p->len,
					  DMA_TO_DEVICE);

		if (ib_dma_mapping_error(ib, dma))
			return -ENOMEM;
		tx->dma[i] = dma;
		sge[i] = (struct ib_sge){
			.addr = dma,
			.length = p->len,
			.lkey = link->dev->pd->local_dma_lkey,
		};
	}
	return 0;
}

/*
 * Whether this message can be posted unsignaled.  Until the next signaled one
 * completes, the socket may stay charged for its octets.  So they must be few,
 * and nothing may wait for their completion.
 */
static bool is_quiet(const struct sdp_link *link, const struct sdp_out *out)
{
	BUILD_BUG_ON(SDP_TX_QUIET * SDP_TX_INLINE > SOCK_MIN_SNDBUF / 3);
	BUILD_BUG_ON(SDP_TX_QUIET >= SDP_TX_SLOTS);
	return link->tx_inline && link->tx_quiet < SDP_TX_QUIET &&
	       out->msg.mid == SDP_MID_DATA && !out->invalidate &&
	       out->msg.payload <= SDP_TX_INLINE - SDP_BSDH_LEN &&
	       link->conn.state == SDP_OPEN && !link->orphan && !link->pushers;
}

static void set_starved(struct sdp_link *link, bool starved)
{
	lockdep_assert_held(&link->lock);
	if (starved && !link->starved) {
		link->starved_at = jiffies;
		link->probe_time = SDP_PROBE_TIME;
	}
	link->starved = starved;
}

/* Fill the next slot with a message's header and payload.  Under link->lock. */
static struct sdp_tx *prepare(struct sdp_link *link, const struct sdp_out *out)
{
	struct sdp_tx *tx = &link->tx[link->tx_next];
	bool quiet = is_quiet(link, out);

	lockdep_assert_held(&link->lock);
	sdp_link_stated(link);
	trace_sdp_message_sent(link, &out->msg);
	trace_resize(link, true, &out->msg);
	tx->cqe.done = tx_done;
	tx->mid = out->msg.mid;
	fill(link, tx, out->msg.payload);
	tx->hdr_len = sdp_encode(link->layout, &out->msg, tx->hdr);
	link->tx_next = (link->tx_next + 1) % SDP_TX_SLOTS;
	link->tx_busy++;
	link->tx_large += is_large(tx);
	if (out->msg.payload)
		set_starved(link, false);
	tx->covers = quiet ? 0 : link->tx_quiet + 1;
	link->tx_quiet = quiet ? link->tx_quiet + 1 : 0;
	return tx;
}

/* Post a small message inline, unsignaled: it completes only when flushed. */
static int hand_over_quietly(struct sdp_link *link, struct sdp_tx *tx,
			     const struct sdp_out *out)
{
	u8 octets[SDP_TX_INLINE];
	struct ib_sge sge = { .addr = (uintptr_t)octets };
	struct ib_send_wr wr = {
		.wr_cqe = &tx->cqe,
		.opcode = IB_WR_SEND,
		.send_flags = IB_SEND_INLINE |
			      (out->solicited ? IB_SEND_SOLICITED : 0),
		.sg_list = &sge,
		.num_sge = 1,
	};
	u32 payload = tx->payload;
	u8 i;

	memcpy(octets, tx->hdr, tx->hdr_len);
	sge.length = tx->hdr_len;
	for (i = 0; i < tx->pieces; i++) {
		struct sdp_piece *p = &tx->piece[i];

		/* the page may be a compound one, which memcpy_from_page() refuses */
		memcpy(octets + sge.length, page_address(p->page) + p->off,
		       p->len);
		sge.length += p->len;
		put_page(p->page);
	}
	tx->pieces = 0;
	tx->payload = 0;
	atomic_add(payload, &link->tx_done);
	return ib_post_send(link->qp, &wr, NULL);
}

/* Post to the device, which may transmit at once; without link->lock */
static int hand_over(struct sdp_link *link, struct sdp_tx *tx,
		     const struct sdp_out *out)
{
	struct ib_sge sge[SDP_TX_PIECES + 1] = {
		{
			.addr = tx->hdr_dma,
			.length = tx->hdr_len,
			.lkey = link->dev->pd->local_dma_lkey,
		},
	};
	struct ib_send_wr wr = {
		.wr_cqe = &tx->cqe,
		.opcode = out->invalidate ? IB_WR_SEND_WITH_INV : IB_WR_SEND,
		.ex.invalidate_rkey = out->stag,
		.send_flags = IB_SEND_SIGNALED |
			      (out->solicited ? IB_SEND_SOLICITED : 0),
		.sg_list = sge,
	};
	int ret;

	if (!tx->covers)
		return hand_over_quietly(link, tx, out);
	ib_dma_sync_single_for_device(link->dev->ib, tx->hdr_dma, SDP_HDR_MAX,
				      DMA_TO_DEVICE);
	ret = map(link, tx, sge + 1);
	wr.num_sge = 1 + tx->pieces;
	ret = ret ?: ib_post_send(link->qp, &wr, NULL);
	if (ret) {
		unmap(link, tx);
		atomic_add(tx->payload, &link->tx_done);
	}
	return ret;
}

/* Count the message, or take the link down after an error. */
static void handed_over(struct sdp_link *link, const struct sdp_out *out, int ret)
{
	lockdep_assert_held(&link->lock);
	if (ret)
		sdp_link_down(link, -ret);
	else
		sdp_count_sent(link->seen.net, &out->msg);
}

static void send_unlocked(struct sdp_link *link, const struct sdp_out *out)
{
	struct sdp_tx *tx = prepare(link, out);
	int ret;

	lockdep_assert_held(&link->lock);
	/* do not hold the lock while TCP transmits */
	spin_unlock(&link->lock);
	ret = hand_over(link, tx, out);
	spin_lock(&link->lock);
	handed_over(link, out, ret);
}

void sdp_link_send(struct sdp_link *link, const struct sdp_out *out)
{
	lockdep_assert_held(&link->lock);
	link->pump = SDP_PUMP_RUNS;
	send_unlocked(link, out);
	link->pump = SDP_PUMP_IDLE;
	sdp_link_pump(link);
}

/* Messages at a time; the work item sends the rest */
#define PUMP_BUDGET	64

static void send_failed(struct sdp_link *link, enum ib_wc_status status)
{
	if (status != IB_WC_WR_FLUSH_ERR)
		sdp_link_abort(link, status == IB_WC_RETRY_EXC_ERR ? ETIMEDOUT :
								     ECONNRESET);
}

/* Build the next message; false if there is none or it must not be sent now. */
static bool next(struct sdp_link *link, struct sdp_queue *q, struct sdp_out *out)
{
	lockdep_assert_held(&link->lock);
	if (link->phase != SDP_LINK_UP)
		return false;
	/*
	 * Do not move again while there is unread payload of an earlier
	 * carrier: otherwise a peer that keeps moving could make a program
	 * that does not read hold any amount of memory.
	 */
	if (link->conn.suspend_due && link->kept_count && !link->conn.abort_due)
		return false;
	*q = offered(link);
	return link->tx_busy < SDP_TX_SLOTS &&
	       sdp_conn_next(&link->conn, q, out);
}

static void nudge_later(struct sdp_link *link)
{
	lockdep_assert_held(&link->lock);
	if (!timer_pending(&link->nudge))
		sdp_link_later(link, SDP_NUDGE_TIME);
}

static void probe_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct sdp_link *link = container_of(wc->wr_cqe, struct sdp_link, probe);

	spin_lock_bh(&link->lock);
	link->probing = false;
	spin_unlock_bh(&link->lock);
	if (wc->status)
		send_failed(link, wc->status);
}

/*
 * An RDMA Write of no octets needs neither credit nor an STag (RFC 5041 section
 * 5.2), and the peer's program does not see it.  But TCP must get it acknowledged.
 */
static void probe(struct sdp_link *link)
{
	struct ib_rdma_wr wr = {
		.wr.wr_cqe = &link->probe,
		.wr.opcode = IB_WR_RDMA_WRITE,
		.wr.send_flags = IB_SEND_SIGNALED,
	};
	int ret;

	lockdep_assert_held(&link->lock);
	link->probe.done = probe_done;
	link->probing = true;
	link->pump = SDP_PUMP_RUNS;
	/* the device may call probe_done() from within ib_post_send() */
	spin_unlock(&link->lock);
	ret = ib_post_send(link->qp, &wr.wr, NULL);
	spin_lock(&link->lock);
	link->pump = SDP_PUMP_IDLE;
	if (ret)
		sdp_link_down(link, -ret);
}

void sdp_link_starves(struct sdp_link *link)
{
	unsigned long passed = jiffies - link->starved_at;
	u32 limit = 0;

	lockdep_assert_held(&link->lock);
	if (!link->starved)
		return;
	if (link->sk)
		limit = READ_ONCE(inet_csk(link->sk)->icsk_user_timeout);
	if (limit && passed >= msecs_to_jiffies(limit)) {
		sdp_link_down(link, ETIMEDOUT);
		return;
	}
	if (passed < link->probe_time || link->probing ||
	    link->pump != SDP_PUMP_IDLE)
		return;
	link->probe_time = passed + min_t(unsigned long, passed, SDP_PROBE_MOST);
	probe(link);
}

/* Set a timer for octets that wait for credit or for more octets. */
static void set_nudge(struct sdp_link *link, const struct sdp_queue *q)
{
	bool starved;

	lockdep_assert_held(&link->lock);
	if (link->phase != SDP_LINK_UP)
		return;
	starved = sdp_conn_starved(&link->conn, q);
	set_starved(link, starved);
	/* the completion of a signaled message calls sdp_link_pump() */
	if (!starved && (!q->octets || flows(link) || q->partial))
		return;
	if (starved && !timer_pending(&link->nudge))
		trace_sdp_credit(link, false);
	nudge_later(link);
}

/* True: the sending is left to another context. */
static bool left_to_others(struct sdp_link *link)
{
	lockdep_assert_held(&link->lock);
	if (link->phase != SDP_LINK_UP || link->tx_busy == SDP_TX_SLOTS ||
	    !sdp_credits_allow(&link->conn.credits, true))
		return false;
	set_starved(link, false);
	/*
	 * A packet sent from softirq waits in the backlog until that ends, and the
	 * packets of a process overtake it: TCP would take that for loss.
	 */
	if (in_serving_softirq() && !link->queue_octets &&
	    sdp_credits_due(&link->conn.credits, flows(link))) {
		sdp_link_event(link, SDP_EV_PUMP);
		return true;
	}
	switch (sdp_push_by(in_serving_softirq(), link->queue_octets,
			    link->sk ? link->pushers : 0, link->push_due)) {
	case SDP_PUSH_WAKE:
		WRITE_ONCE(link->push_due, true);
		sdp_sock_wake_writers(link->sk);
		fallthrough;
	case SDP_PUSH_WOKEN:
		/* it may get no CPU, or wait for the socket's lock */
		nudge_later(link);
		return true;
	case SDP_PUSH_WORK:
		sdp_link_push(link);
		return true;
	case SDP_PUSH_HERE:
		break;
	}
	return false;
}

void sdp_link_push_begin(struct sdp_link *link)
{
	spin_lock_bh(&link->lock);
	link->pushers++;
	spin_unlock_bh(&link->lock);
}

void sdp_link_push_end(struct sdp_link *link)
{
	spin_lock_bh(&link->lock);
	link->pushers--;
	WRITE_ONCE(link->push_due, false);
	sdp_link_pump(link);
	spin_unlock_bh(&link->lock);
}

void sdp_link_pump(struct sdp_link *link)
{
	u32 left = PUMP_BUDGET;
	struct sdp_queue q = {};
	struct sdp_out out;

	lockdep_assert_held(&link->lock);
	if (link->pump != SDP_PUMP_IDLE) {
		link->pump = SDP_PUMP_AGAIN;
		return;
	}
	if (left_to_others(link))
		return;
	/* few large messages cost less than many small ones */
	if (link->phase == SDP_LINK_UP && sdp_conn_sends(&link->conn) &&
	    link->queue_octets > 2 * (u64)link->conn.resize.peer)
		sdp_resize_ask(&link->conn.resize, SDP_RX_SIZE);
	do {
		link->pump = SDP_PUMP_RUNS;
		while (left && next(link, &q, &out)) {
			left--;
			send_unlocked(link, &out);
		}
	} while (left && link->pump == SDP_PUMP_AGAIN);
	link->pump = SDP_PUMP_IDLE;
	if (!left)
		sdp_link_push(link);
	set_nudge(link, &q);
}

static void quiesce(struct sdp_link *link, bool receivers)
{
	spin_lock_bh(&link->lock);
	while (link->pump != SDP_PUMP_IDLE || (receivers && link->receivers)) {
		spin_unlock_bh(&link->lock);
		/* a sender has softirqs off, and a receiver has a bound */
		usleep_range(10, 100);
		spin_lock_bh(&link->lock);
	}
	spin_unlock_bh(&link->lock);
}

void sdp_link_quiesce(struct sdp_link *link)
{
	quiesce(link, true);
}

void sdp_link_wait_posted(struct sdp_link *link)
{
	quiesce(link, false);
}

static void tx_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct sdp_tx *tx = container_of(wc->wr_cqe, struct sdp_tx, cqe);
	struct sdp_link *link = tx->link;
	enum sdp_input input = SDP_IN_SAID_DONE;
	/* another message may use the slot as soon as it is free */
	u32 payload = tx->payload;
	bool large = is_large(tx);
	u8 covers = tx->covers;
	u8 mid = tx->mid;
	struct sock *sk;

	unmap(link, tx);
	atomic_add(payload, &link->tx_done);
	if (wc->status) {
		send_failed(link, wc->status);
		return;
	}
	spin_lock_bh(&link->lock);
	link->tx_busy -= covers;
	if (link->fin_waits && sdp_link_fin_due(link))
		sdp_link_event(link, SDP_EV_FIN);
	link->tx_large -= large;
	if (link->phase == SDP_LINK_UP) {
		if (mid == SDP_MID_HELLO_ACK)
			sdp_link_answered(link);
		if (mid == SDP_MID_ABORT_CONN)
			input = SDP_IN_ABORT_DONE;
		if (mid == SDP_MID_SUSP_COMM_ACK)
			sdp_link_event(link, SDP_EV_MOVE);
		if (mid == SDP_MID_DISCONN || mid == SDP_MID_ABORT_CONN)
			sdp_link_act(link, sdp_conn_input(&link->conn, input));
		sdp_link_pump(link);
	}
	sk = link->sk;
	/* SO_LINGER waits for DisConn and for all messages after it */
	if (sk && (mid == SDP_MID_DISCONN || (link->orphan && !link->tx_busy)))
		sk->sk_state_change(sk);
	if (sk)
		sock_hold(sk);
	spin_unlock_bh(&link->lock);
	if (!sk)
		return;
	/* octets of its own, or of the quiet messages before it */
	if (payload || covers > 1)
		sdp_sock_sent(sk);
	sock_put(sk);
}

/* Memory ------------------------------------------------------------------- */

static int alloc_rx(struct sdp_link *link)
{
	u32 i;
	int ret;

	link->rx = kcalloc(SDP_RX_BUFS, sizeof(*link->rx), GFP_KERNEL);
	if (!link->rx)
		return -ENOMEM;
	for (i = 0; i < SDP_RX_BUFS; i++) {
		link->rx[i].link = link;
		INIT_LIST_HEAD(&link->rx[i].entry);
	}
	for (i = 0; i < SDP_RX_FIRST_BUFS; i++) {
		struct sdp_rx *rx = &link->rx[i];

		ret = room_alloc(&rx->room, SDP_RX_FIRST_SIZE, i) ?:
		      room_map(&rx->room, link->dev->ib) ?:
		      post(link, rx);
		if (ret)
			return ret;
	}
	WRITE_ONCE(link->rx_count, SDP_RX_FIRST_BUFS);
	return 0;
}

static int alloc_tx(struct sdp_link *link)
{
	struct ib_device *ib = link->dev->ib;
	u32 i;

	if (!link->queue)
		link->queue = kcalloc(SDP_TX_QUEUE, sizeof(*link->queue),
				      GFP_KERNEL);
	link->tx = kcalloc(SDP_TX_SLOTS, sizeof(*link->tx), GFP_KERNEL);
	if (!link->queue || !link->tx)
		return -ENOMEM;
	for (i = 0; i < SDP_TX_SLOTS; i++) {
		struct sdp_tx *tx = &link->tx[i];
		u64 dma = ib_dma_map_single(ib, tx->hdr, SDP_HDR_MAX,
					    DMA_TO_DEVICE);

		if (ib_dma_mapping_error(ib, dma))
			return -ENOMEM;
		/* marks it as mapped for sdp_link_unmap() */
		tx->hdr_dma = dma;
		tx->link = link;
	}
	return 0;
}

int sdp_link_alloc(struct sdp_link *link)
{
	int ret = alloc_tx(link);

	return ret ?: alloc_rx(link);
}

void sdp_link_unmap(struct sdp_link *link)
{
	struct ib_device *ib = link->dev->ib;
	u32 i;

	for (i = 0; link->rx && i < SDP_RX_BUFS; i++)
		room_unmap(&link->rx[i].room, ib);
	for (i = 0; link->tx && i < SDP_TX_SLOTS; i++) {
		struct sdp_tx *tx = &link->tx[i];

		if (!tx->link)
			continue;
		/*
		 * What a program sends while the stream ends is posted after
		 * the flush, and the end of the queue pair drops its completion.
		 */
		if (tx->pieces)
			atomic_add(tx->payload, &link->tx_done);
		unmap(link, tx);
		ib_dma_unmap_single(ib, tx->hdr_dma, SDP_HDR_MAX,
				    DMA_TO_DEVICE);
	}
}

static void free_rx(struct sdp_rx *rx)
{
	u32 i;

	for (i = 0; rx && i < SDP_RX_BUFS; i++)
		room_free(&rx[i].room);
	kfree(rx);
}

/*
 * The program may be reading, so unread payload stays where it is.  The socket
 * remains charged for the old buffers.  The new ones are added to
 * link->rx_more, which settle() charges as soon as it runs.
 */
void sdp_link_keep(struct sdp_link *link)
{
	struct sdp_room *spare;
	struct sdp_rx *old, *rx;
	u32 i;

	spin_lock_bh(&link->lock);
	old = link->rx;
	list_for_each_entry(rx, &link->rx_ready, entry) {
		if (rx->kept)
			continue;
		rx->kept = true;
		link->kept_count++;
	}
	if (link->kept_count)
		atomic_add(SDP_LINK_COST, &link->rx_more);
	for (i = 0; i < SDP_RX_BUFS; i++)
		if (!old[i].kept)
			room_free(&old[i].room);
	if (link->kept_count)
		swap(link->kept, old);
	link->rx = NULL;
	WRITE_ONCE(link->rx_full, 0);
	link->rx_want = 0;
	link->moves++;
	WRITE_ONCE(link->grow, false);
	WRITE_ONCE(link->arrived, false);
	spare = link->spare;
	link->spare = NULL;
	link->spares = 0;
	link->tx_next = 0;
	link->tx_busy = 0;
	link->tx_large = 0;
	link->tx_quiet = 0;
	link->probing = false;
	spin_unlock_bh(&link->lock);
	kfree(old);
	free_rooms(spare);
	kfree(link->tx);
	link->tx = NULL;
}

void sdp_link_free(struct sdp_link *link)
{
	free_rx(link->rx);
	free_rx(link->kept);
	free_rooms(link->spare);
	while (link->queue_count) {
		put_page(queued(link, 0)->page);
		link->queue_head = (link->queue_head + 1) % SDP_TX_QUEUE;
		link->queue_count--;
	}
	kfree(link->queue);
	kfree(link->tx);
	link->spare = NULL;
	link->rx = NULL;
	link->queue = NULL;
	link->tx = NULL;
}
