"""What the Redis server does for ``RedisStore``, each in one atomic step (Lua).

    {call}:head   hash: fence, number, created, changed     {call}:items   list of items as wire JSON
    {call}:owner  the writer's name, with the time of the lease

``fence`` grows with each writer. Only the writer with the highest one has an effect, whatever its clock says.
"""

from __future__ import annotations

from typing import Final

__all__ = ["APPLY", "LOAD", "OPEN", "RELEASE", "RENEW", "RESTORE"]

OPEN: Final = """
local head, items, owner = KEYS[1], KEYS[2], KEYS[3]
local writer, lease, ttl, now, take = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local present = redis.call('GET', owner)
if present and take ~= '1' then return {0, present} end
local fence = redis.call('HINCRBY', head, 'fence', 1)
redis.call('HSETNX', head, 'created', now)
redis.call('HSETNX', head, 'number', '0')
redis.call('SET', owner, writer, 'PX', lease)
if ttl ~= '0' then redis.call('PEXPIRE', head, ttl) redis.call('PEXPIRE', items, ttl) end
return {1, fence, tonumber(redis.call('HGET', head, 'number')), redis.call('LRANGE', items, 0, -1)}
"""
"""Open a call for a writer: ``{0, the present writer}``, or ``{1, fence, number, items}``."""

_MINE: Final = """
local head, items, owner = KEYS[1], KEYS[2], KEYS[3]
local fence, writer, lease, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local last = redis.call('HGET', head, 'fence')
if not last then return -2 end
if last ~= fence then return -1 end
local present = redis.call('GET', owner)
if present and present ~= writer then return -1 end
redis.call('SET', owner, writer, 'PX', lease)
"""
"""-1: another writer has the call. -2: the server knows nothing of it any more. Otherwise the lease begins again."""

RENEW: Final = (
    _MINE
    + """
if ttl ~= '0' then redis.call('PEXPIRE', head, ttl) redis.call('PEXPIRE', items, ttl) end
return 0
"""
)

APPLY: Final = (
    _MINE
    + """
local number = tonumber(redis.call('HGET', head, 'number'))
local at = 6
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
redis.call('HSET', head, 'number', number, 'changed', ARGV[5])
if ttl ~= '0' then redis.call('PEXPIRE', head, ttl) redis.call('PEXPIRE', items, ttl) end
return number
"""
)
"""Store changes: for each its number, index, how many items go, how many come, and these."""

RESTORE: Final = """
local head, items, owner = KEYS[1], KEYS[2], KEYS[3]
if redis.call('EXISTS', head) == 1 then return -1 end
redis.call('HSET', head, 'fence', ARGV[1], 'number', ARGV[6], 'created', ARGV[5], 'changed', ARGV[5])
redis.call('DEL', items)
for at = 7, #ARGV do redis.call('RPUSH', items, ARGV[at]) end
redis.call('SET', owner, ARGV[2], 'PX', ARGV[3])
if ARGV[4] ~= '0' then redis.call('PEXPIRE', head, ARGV[4]) redis.call('PEXPIRE', items, ARGV[4]) end
return 0
"""
"""Put a call back that a server lost when it was restarted; by the writer that still has it."""

LOAD: Final = """
if redis.call('EXISTS', KEYS[1]) == 0 then return {0} end
return {1, redis.call('LRANGE', KEYS[2], 0, -1)}
"""

RELEASE: Final = """
if redis.call('HGET', KEYS[1], 'fence') == ARGV[1] and redis.call('GET', KEYS[3]) == ARGV[2] then
  redis.call('DEL', KEYS[3])
end
return 0
"""
