/* Back-pressure between two operators: a bounded worklist (CAP) behind a reorder buffer, W workers that
 * choose any runnable operator. A release that finds no room PARKS: it clears the flag, leaves the unit in
 * its slot and returns; a ready unit with room downstream makes the operator schedulable
 * (ordstream/_core/flow/runtime.pyx, anything_schedulable).
 *
 * Checked: order, everything arrives, no invalid end state.
 * Mutants: BLOCK       the release waits for room while it holds the flag (deadlock)
 *          NO_RESUME   a parked unit does not make its operator schedulable (stuck)
 *          DROP        the unit is dropped where there is no room
 */
#ifndef W
#define W 2
#endif
#ifndef S
#define S 2
#endif
#ifndef N
#define N 4
#endif
#ifndef CAP
#define CAP 1
#endif

byte slot[S];
byte next = 1;
bit flag = 0;
byte ticket = 1;
chan worklist = [CAP] of { byte };
byte arrived = 0;
bit sink_busy = 0;    /* the second operator is stateful: one worker */

#define CAN_DISPATCH (ticket <= N && ticket < next + S)
#define CAN_RELEASE (next <= N && slot[next % S] != 0 && flag == 0 && len(worklist) < CAP)
#define CAN_CONSUME (len(worklist) > 0 && !sink_busy)

active [W] proctype worker()
{
    byte t, n, u;
    bit busy, stopped;
    do
    :: atomic { arrived == N -> break }
    :: atomic { CAN_DISPATCH -> t = ticket; ticket++ };
        slot[t % S] = t;
        t = 0;
        goto release
#ifndef NO_RESUME
    :: atomic { CAN_RELEASE -> skip };
        goto release
#endif
    :: atomic { CAN_CONSUME -> sink_busy = 1 };
        atomic { worklist ? u; assert(u == arrived + 1); arrived = u; u = 0 };
        sink_busy = 0;
        goto again;
release:
        atomic { busy = flag; flag = 1 };
        if
        :: busy -> goto again
        :: else
        fi;
        n = next;
        stopped = 0;
        do
        :: u = slot[n % S];
            if
            :: u == 0 -> break
            :: else ->
                assert(u == n);
#ifdef BLOCK
                worklist ! u;
#else
                atomic {
                    if
                    :: len(worklist) < CAP -> worklist ! u
                    :: else ->
#ifdef DROP
                        skip
#else
                        stopped = 1
#endif
                    fi
                };
                if
                :: stopped -> break
                :: else
                fi;
#endif
                slot[n % S] = 0;
                next = n + 1;
                n++
            fi
        od;
        flag = 0;
        if
        :: !stopped && slot[n % S] != 0 -> goto release
        :: else
        fi;
again:
        atomic { t = 0; n = 0; u = 0; busy = 0; stopped = 0 }
    od
}
