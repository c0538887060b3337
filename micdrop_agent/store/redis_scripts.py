"""What the Redis server does for ``RedisStore``, each in one atomic step (Lua).

    {call}:head   hash: fence, writer, number, created, changed     {call}:items   list of items as wire JSON
    {call}:owner  the writer's name, with the time of the lease

``fence`` grows with each writer. Only the writer with the highest one has an effect, whatever its clock says.
``writer`` is whom it was given to: a server that lost its data gives the same number again.
"""

from __future__ import annotations

from typing import Final

__all__ = ["APPLY", "LOAD", "OPEN", "RELEASE", "RENEW", "RESTORE"]

OPEN: Final = """
local head, items, owner = KEYS[1], KEYS[2], KEYS[3]
local writer, lease, ttl, now, take = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local present = redis.call('GET', owner)
if present and present ~= writer and take ~= '1' then return {0, present} end
local previous = redis.call('HGET', head, 'writer') or ''
local fence = redis.call('HINCRBY', head, 'fence', 1)
redis.call('HSETNX', head, 'created', now)
redis.call('HSETNX', head, 'number', '0')
redis.call('HSET', head, 'writer', writer)
redis.call('SET', owner, writer, 'PX', lease)
if ttl ~= '0' then redis.call('PEXPIRE', head, ttl) redis.call('PEXPIRE', items, ttl) end
return {1, fence, previous, tonumber(redis.call('HGET', head, 'number')), redis.call('LRANGE', items, 0, -1)}
"""
"""Open a call for a writer: ``{0, the present writer}``, or ``{1, fence, the writer before, number, items}``."""

_MINE: Final = """
local head, items, owner = KEYS[1], KEYS[2], KEYS[3]
local fence, writer, previous, lease, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local last = redis.call('HGET', head, 'fence')
local present = redis.call('GET', owner)
if present and present ~= writer then return -1 end
if not last then return -2 end
local who = redis.call('HGET', head, 'writer')
if last ~= fence or who ~= writer then
  if tonumber(last) < tonumber(fence) and who == previous then return -2 end
  return -1
end
"""
"""-1: another writer has the call. -2: the server lost what it had.

A server that went back to its state of before this opening names the writer before; one that a later writer
has opened since then names that one.
"""

_EXTEND: Final = """
if present then redis.call('PEXPIRE', owner, lease) else redis.call('SET', owner, writer, 'PX', lease) end
if ttl ~= '0' then redis.call('PEXPIRE', head, ttl) redis.call('PEXPIRE', items, ttl) end
"""
"""The lease begins again. At the end: a full server lets a script go on that has written something, so what
needs room comes first and is refused as a whole; and a lease that only goes on needs none.
"""

RENEW: Final = (
    _MINE
    + """
if tonumber(redis.call('HGET', head, 'number')) < tonumber(ARGV[6]) then return -2 end
"""
    + _EXTEND
    + "return 0"
)

APPLY: Final = (
    _MINE
    + """
local number = tonumber(redis.call('HGET', head, 'number'))
local at = 7
if ARGV[at] and tonumber(ARGV[at]) > number + 1 then return -2 end
redis.call('HSET', head, 'changed', ARGV[6])
while at <= #ARGV do
  local change, index, gone, come = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  at = at + 4
  if change > number then
    local rest = redis.call('LRANGE', items, index + gone, -1)
    if index == 0 then redis.call('DEL', items) else redis.call('LTRIM', items, 0, index - 1) end
    for offset = 0, come - 1 do redis.call('RPUSH', items, ARGV[at + offset]) end
    for _, item in ipairs(rest) do redis.call('RPUSH', items, item) end
    number = change
  end
  at = at + come
end
redis.call('HSET', head, 'number', number)
"""
    + _EXTEND
    + "return number"
)
"""Store changes: for each its number, index, how many items go, how many come, and these."""

RESTORE: Final = """
local head, items, owner = KEYS[1], KEYS[2], KEYS[3]
local fence, writer, previous, lease, ttl, now, number = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local present = redis.call('GET', owner)
if present and present ~= writer then return -1 end
local last, who = redis.call('HGET', head, 'fence'), redis.call('HGET', head, 'writer')
if last and who == writer and last == fence then
  if tonumber(redis.call('HGET', head, 'number')) >= tonumber(number) then return 0 end
elseif last and not (tonumber(last) < tonumber(fence) and who == previous) then
  return -1
end
redis.call('HSETNX', head, 'created', now)
redis.call('HSET', head, 'fence', fence, 'writer', writer, 'number', number, 'changed', now)
redis.call('DEL', items)
for at = 8, #ARGV do redis.call('RPUSH', items, ARGV[at]) end
redis.call('SET', owner, writer, 'PX', lease)
if ttl ~= '0' then redis.call('PEXPIRE', head, ttl) redis.call('PEXPIRE', items, ttl) end
return 0
"""
"""Put a call back that a server lost, wholly or in part; by the writer that still has it."""

LOAD: Final = """
if redis.call('EXISTS', KEYS[1]) == 0 then return {0} end
return {1, redis.call('LRANGE', KEYS[2], 0, -1)}
"""

RELEASE: Final = """
if redis.call('HGET', KEYS[1], 'fence') == ARGV[1] and redis.call('HGET', KEYS[1], 'writer') == ARGV[2] then
  redis.call('DEL', KEYS[3])
  redis.call('HSET', KEYS[1], 'writer', '')
end
return 0
"""
"""Give a call back; without its writer, because a request that arrives only now must not open it again."""
