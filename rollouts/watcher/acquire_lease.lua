-- Takes the lease of a cluster if it is free, renews it if it is ours. Returns 'new', 'again' or 'other'.

local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
    return 'other'
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return holder and 'again' or 'new'
