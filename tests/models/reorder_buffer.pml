/* Reorder buffer, Fig. 4 of the ordered paper as ordstream/_core/flow/reorder_buffer.pxd has it: gate at
 * dispatch, tail call as a loop, tickets from 1. W workers, S slots, N tickets. Sequentially consistent but
 * for the flag's clear under -DWEAK_CLEAR.
 *
 * Checked: units leave in ticket order, each once; no ready unit is left when nobody is in send; everything
 * leaves (no invalid end state). Mutants (-D...), each of which must be caught:
 *   NO_RECHECK   without L40-42
 *   NEXT_ZERO    next starts at 0
 *   STORE_SWAP   next is advanced before the slot is emptied
 *   NO_GATE      tickets past the window
 *   WEAK_CLEAR   the clear may wait in the worker's store buffer past the re-check
 *   NO_FLAG      release without test-and-set
 * -DOFFER: reorder_offer, where a unit whose turn it is goes from its worker straight to delivery, under the
 * flag. Its mutants:
 *   OFFER_NO_FLAG   without taking the flag
 *   OFFER_LEAVES    the worker leaves after its own unit
 * -DPEEK: a worker that has put its unit and finds the slot of `next` empty leaves without trying the flag.
 * Its mutant:
 *   PEEK_FIRST      it looks before it puts
 * -DBEHIND: a worker that also has a unit behind the one it sends (send_or_hold in delivery.pyx) puts that
 * first, and nothing else: sending its own earlier one releases it. Its mutant:
 *   BEHIND_LATE     it puts that afterwards
 */
#ifndef W
#define W 2
#endif
#ifndef S
#define S 2
#endif
#ifndef N
#define N 5
#endif

byte slot[S];
#ifdef NEXT_ZERO
byte next = 0;
#else
byte next = 1;
#endif
bit flag = 0;
bit buffered[W];      /* WEAK_CLEAR: the worker's clear has not reached memory */
byte ticket = 1;      /* next ticket to dispatch */
byte sent = 0;
byte insend = 0;
byte finished = 0;

#define FLUSH(me) d_step { if :: buffered[me] -> buffered[me] = 0; flag = 0 :: else fi }

active [W] proctype worker()
{
    byte t, n, u, behind;
    bit busy;
    do
#ifdef NO_GATE
    :: atomic { ticket <= N -> t = ticket; ticket++; insend++ }
#else
    :: atomic { ticket <= N && ticket < next + S -> t = ticket; ticket++; insend++ }
#endif
        skip;                                            /* operate */
#ifdef BEHIND
        if
        :: atomic { ticket <= N && ticket < next + S -> behind = ticket; ticket++ }
        :: skip
        fi;
#ifndef BEHIND_LATE
        if
        :: behind != 0 -> d_step { FLUSH(_pid); slot[behind % S] = behind; behind = 0 }
        :: else
        fi;
#endif
#endif
#ifdef OFFER
        if
        :: next == t ->
#ifdef OFFER_NO_FLAG
            busy = 0;
#else
            d_step { FLUSH(_pid); busy = flag; flag = 1 };
#endif
            if
            :: busy
            :: else ->
                assert(t == sent + 1);
                sent = t;
                n = t + 1;
                next = n;
#ifdef OFFER_LEAVES
                flag = 0;
                goto out;
#endif
                goto drain
            fi
        :: else
        fi;
#endif
#ifdef PEEK_FIRST
        n = next;
        u = slot[n % S];
        d_step { FLUSH(_pid); slot[t % S] = t };
        if
        :: n != t && u == 0 -> goto out
        :: else
        fi;
#else
        d_step { FLUSH(_pid); slot[t % S] = t };         /* L18, a locked store drains the store buffer */
#endif
again:
#if defined(PEEK) && !defined(PEEK_FIRST)
        n = next;
        u = slot[n % S];
        if
        :: u == 0 -> goto out
        :: else
        fi;
#endif
#ifdef NO_FLAG
        busy = 0;
#else
        d_step { FLUSH(_pid); busy = flag; flag = 1 };   /* L25 */
#endif
        if
        :: busy
        :: else ->
            n = next;                                    /* L28 */
drain:      do
            :: u = slot[n % S];                          /* L30 */
                if
                :: u == 0 -> break
                :: else ->
                    assert(u == n);
                    assert(u == sent + 1);
                    sent = u;
#ifdef STORE_SWAP
                    next = n + 1;
                    slot[n % S] = 0;
#else
                    slot[n % S] = 0;                     /* L33 */
                    next = n + 1;                        /* L34 */
#endif
                    n++
                fi
            od;
#ifdef WEAK_CLEAR
            buffered[_pid] = 1;                          /* L36 */
#else
            flag = 0;
#endif
#ifndef NO_RECHECK
            if
            :: slot[n % S] != 0 -> goto again            /* L40 */
            :: else
            fi
#endif
        fi;
out:
#ifdef BEHIND_LATE
        if
        :: behind != 0 -> d_step { FLUSH(_pid); slot[behind % S] = behind; behind = 0 }
        :: else
        fi;
#endif
        atomic {
            t = 0; n = 0; u = 0; busy = 0;
            FLUSH(_pid);
            insend--;
            assert(insend > 0 || next > N || slot[next % S] == 0)
        }
    :: ticket > N -> break
    od;
    finished++
}

active proctype monitor()
{
    finished == W -> assert(sent == N && next == N + 1)
}

#ifdef WEAK_CLEAR
/* The memory system: drains a store buffer whenever it likes. */
active proctype memory()
{
    byte k;
end:
    do
    :: k = 0;
       do
       :: k < W && !buffered[k] -> k++
       :: k < W && buffered[k] -> FLUSH(k); break
       :: k >= W -> break
       od;
       finished == W -> break
    :: finished == W -> break
    od
}
#endif
