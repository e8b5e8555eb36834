-- Reviews that start by themselves, for those who asked for it: after a save, and after a commit made anywhere.
local M = {}

local QUIET_MS = 1500 -- many saves in a row are one review

local pending = {}
local watchers = {}

local function later(key, act)
  if pending[key] then
    pending[key]:stop()
  end
  pending[key] = vim.defer_fn(function()
    pending[key] = nil
    act()
  end, vim.g.outpost_quiet_ms or QUIET_MS)
end

local function review(argument)
  if #vim.lsp.get_clients({ name = "outpost" }) > 0 then
    require("outpost.client").command("review", argument)
  end
end

-- The system tells when the log of HEAD grows; nothing polls.
local function watch_commits(root)
  if not root or watchers[root] then
    return
  end
  local log = vim.fs.joinpath(root, ".git", "logs")
  local watcher = vim.uv.fs_stat(log) and vim.uv.new_fs_event()
  if watcher and watcher:start(log, {}, vim.schedule_wrap(function(_, name)
    if name == "HEAD" and vim.g.outpost_review_on_commit then
      later("commit", function() review({ scope = "commit", revision = "HEAD" }) end)
    end
  end)) then
    watchers[root] = watcher
  end
end

function M.watch()
  local group = vim.api.nvim_create_augroup("outpost-automatic", { clear = true })
  vim.api.nvim_create_autocmd("BufWritePost", {
    group = group,
    callback = function(event)
      if vim.g.outpost_review_on_save and #vim.lsp.get_clients({ name = "outpost", bufnr = event.buf }) > 0 then
        local uri = vim.uri_from_bufnr(event.buf)
        later(uri, function() review({ scope = "file", uri = uri }) end)
      end
    end,
  })
  vim.api.nvim_create_autocmd("LspAttach", {
    group = group,
    callback = function(event)
      local client = vim.lsp.get_client_by_id(event.data.client_id)
      if client and client.name == "outpost" and vim.g.outpost_review_on_commit then
        watch_commits(client.root_dir)
      end
    end,
  })
  vim.api.nvim_create_autocmd("VimLeavePre", {
    group = group,
    callback = function()
      for _, watcher in pairs(watchers) do
        watcher:stop()
      end
    end,
  })
end

return M
