-- Ends all claims of a process. Returns their keys; the next sweep sends the messages. All claims are read: there are at
-- most as many as there are worker processes.

local owner, first_ms, longest_ms = ARGV[2], ARGV[3], ARGV[4]
local released = {}
for _, key in ipairs(call('HKEYS', claims)) do
    local _, _, _, holder = claim_of(key)
    if holder == owner then
        reclaim(key, 0, tonumber(first_ms), tonumber(longest_ms))
        released[#released + 1] = key
    end
end
return released
