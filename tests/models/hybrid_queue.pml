/* Hybrid queue, Fig. 7 of the ordered paper as ordstream/_core/flow/worklist/hybrid.pxd has it: one
 * producer, gate at dispatch against the reorder window, time slices, and the hand-over list that every
 * entering worker looks at first.
 * K buckets, W workers, N tuples with any buckets, window of S tickets; a slice may end after any tuple.
 *
 * The hand-over list is a bounded ring after Vyukov: a take claims a position first and gives the cell back
 * later, so that a push can meet a cell that is not free although the list is not full (R cells). The worker
 * then keeps the bucket and goes on.
 *
 * CLAIM: a worker may claim two items of the master queue at once. It enters the second one's bucket when it
 * is done with the first's, and keeps what it has completed until then: the reorder buffer does not see it.
 *
 * Checked: one worker per bucket, each bucket in order, everything once, everything done (no invalid end
 * state).
 * Mutants: MASTER_FIRST  addInput enqueues into the master queue first
 *          NO_HANDOVER   a slice that ends with delegated tuples just leaves
 *          TAIL          it re-enqueues the bucket at the master queue's tail (deadlock once K >= W + 1)
 *          LOSE          a failed push is ignored
 *          HOLD_ON       with CLAIM: what is kept is not given to the reorder buffer before the next claim
 */
#ifndef K
#define K 2
#endif
#ifndef W
#define W 2
#endif
#ifndef S
#define S 2
#endif
#ifndef N
#define N 4
#endif
#ifndef R
#define R 2
#endif
#define M (N + N)     /* cells of the master queue: never full (TAIL re-enqueues) */

byte fill[K];         /* tuples put into partition queue b; tuple i of it has ticket ticket_of[b * N + i] */
byte taken[K];
byte ticket_of[K * N];
byte master[M];       /* ticket * K + bucket + 1; 0: unpublished. TAIL: ticket 0 is a bucket in hand-over */
byte mhead = 0;
byte mtail = 0;
byte count[K];
bit busy[K];
bit done[N + 2];
byte next = 1;
byte over = 0;        /* finished workers */
bit ready = 0;        /* the ring is initialised */

byte hitem[R];        /* hand-over ring */
byte hseq[R];         /* position p is free in cell p % R when hseq == p, filled when hseq == p + 1 */
byte hhead = 0;
byte htail = 0;

#define HANDED_OVER (hhead < htail && hseq[hhead % R] == hhead + 1)
#define ADMISSIBLE (mhead < mtail && master[mhead] != 0 && (master[mhead] - 1) / K < next + S)
#define COMPLETE(t) d_step { done[t] = 1; do :: done[next] -> next++ :: else -> break od }

active proctype producer()
{
    byte t = 1;
    byte b;
    ready;
    do
    :: t <= N ->
        select(b : 0 .. K - 1);
#ifdef MASTER_FIRST
        atomic { master[mtail] = t * K + b + 1; mtail++ };
        d_step { ticket_of[b * N + fill[b]] = t; fill[b]++ };
#else
        atomic { ticket_of[b * N + fill[b]] = t; fill[b]++ };
        d_step { master[mtail] = t * K + b + 1; mtail++ };
#endif
        d_step { t++; b = 0 }
    :: else -> break
    od
}

active [W] proctype worker()
{
    byte b, c, t, p;
    bit mine;
#ifdef CLAIM
    byte second, kept;    /* bucket + 1 of the second claim; ticket of a completed tuple */
#endif
    do
    :: atomic { next > N -> break }
#if !defined(NO_HANDOVER) && !defined(TAIL)
    :: atomic { next <= N && HANDED_OVER -> p = hhead; hhead++ };   /* the claim */
        d_step { b = hitem[p % R] };
        d_step { hseq[p % R] = p + R; p = 0 };           /* the cell is given back */
        goto work
    :: atomic { next <= N && !HANDED_OVER && ADMISSIBLE ->
#else
    :: atomic { next <= N && ADMISSIBLE ->
#endif
            b = (master[mhead] - 1) % K; t = (master[mhead] - 1) / K; mhead++;
#ifdef CLAIM
            if
            :: ADMISSIBLE -> second = (master[mhead] - 1) % K + 1; mhead++
            :: skip
            fi
#endif
        };
#ifdef CLAIM
enter:  skip;
#endif
#ifdef TAIL
        if
        :: t == 0 -> goto work
        :: else
        fi;
#endif
        d_step { c = count[b]; count[b] = c + 1; t = 0 };    /* L10 */
        if
        :: c == 0 -> c = 0; goto work
        :: else -> c = 0
        fi;
        goto next_item;
work:
        assert(!busy[b]);
        busy[b] = 1;
        d_step {
            assert(taken[b] < fill[b]);                  /* L12 never finds the queue empty */
            t = ticket_of[b * N + taken[b]];
            taken[b]++
        };
        skip;                                            /* L13: operate */
        busy[b] = 0;
#ifdef CLAIM
        if
        :: kept -> COMPLETE(kept)
        :: else
        fi;
        kept = t;
#else
        COMPLETE(t);
#endif
        t = 0;
        d_step { count[b]--; c = count[b] };             /* L14 */
        if
        :: c == 0
        :: c > 0 -> c = 0;
            if
            :: goto work                                 /* the slice goes on */
            :: skip;                                     /* the slice is over */
#ifdef NO_HANDOVER
                skip
#else
#ifdef TAIL
                d_step { master[mtail] = b + 1; mtail++ }
#else
                atomic {
                    if
                    :: hseq[htail % R] == htail -> p = htail; htail++; mine = 1
                    :: else -> mine = 0
                    fi
                };
                if
                :: mine -> d_step { hitem[p % R] = b; mine = 0; hseq[p % R] = p + 1; p = 0 }
                :: else ->
#ifdef LOSE
                    skip
#else
                    goto work
#endif
                fi
#endif
#endif
            fi
        fi;
next_item:
        atomic { b = 0; c = 0; t = 0; p = 0; mine = 0 }
#ifdef CLAIM
        if
        :: second -> d_step { b = second - 1; second = 0 }; goto enter
        :: else
        fi;
#ifdef HOLD_ON
        if
        :: kept && !ADMISSIBLE && next + S <= N -> skip
        :: else ->
#endif
        if
        :: kept -> COMPLETE(kept); kept = 0
        :: else
        fi
#ifdef HOLD_ON
        fi
#endif
#endif
    od;
    over++
}

init
{
    d_step {
        byte k;
        for (k : 0 .. R - 1) { hseq[k] = k }
        k = 0;
        ready = 1
    };
    over == W;
    assert(next == N + 1)
}
