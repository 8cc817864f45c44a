-- Renews the lease of a claim. Returns 0 if the claim is lost.

local key, token, lease_ms = ARGV[2], ARGV[3], ARGV[4]
if not is_claimed_by(key, token) then
    return 0
end
local _, _, latest = claim_of(key)
call('ZADD', processing, text(math.min(now + lease_ms, latest)), key)
return 1
